"""The Rust port: it builds, passes its own tests on the shared vectors, is tidy, and answers `ol conform`.

Where there is no Rust tool chain these tests are skipped and say so. Nothing is fetched: the port has no dependencies.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ol.conform import hold, read
from ol.course import ROOT

PORT = ROOT / "ports" / "rust"
CARGO = shutil.which("cargo")


def _why_not(*tool: str) -> str:
    """Why the port cannot be built here, or looked at with `tool`, in a sentence; "" when it can."""
    if CARGO is None:
        return "the Rust port is not built here: cargo is not on the PATH"
    asked = subprocess.run(
        [CARGO, *tool, "--version"], cwd=PORT, capture_output=True, text=True, encoding="utf-8", check=False
    )
    if asked.returncode == 0:
        return ""
    said = (asked.stderr.strip().splitlines() or ["it says nothing"])[0]
    return f"the Rust port is not built here: `{' '.join(['cargo', *tool, '--version'])}` fails: {said}"


ABSENT = _why_not()
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)


def cargo(*words: str) -> subprocess.CompletedProcess[str]:
    assert CARGO is not None
    done = subprocess.run(
        [CARGO, *words], cwd=PORT, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False
    )
    assert done.returncode == 0, f"cargo {' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done


def built() -> Path:
    cargo("build", "--offline", "--locked")
    folder = Path(os.environ.get("CARGO_TARGET_DIR", PORT / "target"))
    return PORT / folder / "debug" / ("conform.exe" if os.name == "nt" else "conform")


def test_the_port_passes_its_own_tests_on_the_shared_vectors() -> None:
    """Someone who works in Rust needs no Python to be held to the vectors; greedy equality is tested there too.

    KIND: differential.
    """
    done = cargo("test", "--offline", "--locked")
    for name in (
        "verification_emits_the_same_with_as_many_draws",
        "whole_requests_go_the_same_way",
        "greedy_speculation_equals_greedy_decoding",
    ):
        assert f"test {name} ... ok" in done.stdout


def test_ol_conform_passes_the_port() -> None:
    """Same draws, same ids, and the same bits where both use the C library's exp and log.

    KIND: differential, smoke.
    """
    report = hold([str(built())], read())
    assert report.passed, report.text()
    assert all(tally.answered == tally.cases for tally in report.tallies)


def test_the_port_is_formatted_and_free_of_lint() -> None:
    """It is there to be read.

    KIND: unit.
    """
    for tool, words in (
        ("fmt", ("fmt", "--check")),
        ("clippy", ("clippy", "--all-targets", "--offline", "--locked", "--", "-D", "warnings")),
    ):
        if reason := _why_not(tool):
            pytest.skip(reason)
        cargo(*words)


def test_the_port_stands_alone() -> None:
    """No crate registry can be assumed, so the manifest and the lock name no other package.

    KIND: unit.
    """
    assert "dependencies" not in (PORT / "Cargo.toml").read_text(encoding="utf-8").replace("No dependencies.", "")
    assert (PORT / "Cargo.lock").read_text(encoding="utf-8").count("[[package]]") == 1
