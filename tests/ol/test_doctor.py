"""The doctor finds what is wrong, and every finding that is not well says what to type."""

import importlib.metadata
import json
from collections import namedtuple
from pathlib import Path

import pytest

from ol import doctor
from ol.course import module
from ol.start import start
from ol.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


def finding(what: str, workspace: Workspace) -> doctor.Finding:
    (found,) = [f for f in doctor.examine(workspace) if f.what == what]
    return found


def test_this_machine_is_ready_and_each_shortcoming_has_its_line(workspace: Workspace) -> None:
    """Whoever can run these tests can work; the model and the folder may be missing still.

    KIND: unit, smoke.
    """
    found = doctor.examine(workspace)
    assert [f.what for f in found] == ["Python", "packages", "kernel", "model", "disk", "your folder", "course"]
    assert [f for f in found if f.state == "bad"] == []
    assert all(bool(f.fix) == (f.state != "ok") for f in found)
    start(module("M06.3"), workspace)
    assert finding("your folder", workspace).state == "ok"


def test_an_unsuited_python_is_told(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The course is tested on three versions.

    KIND: boundary.
    """
    for version in ((3, 10, 1), (3, 14, 0)):
        monkeypatch.setattr(doctor.sys, "version_info", version)
        found = finding("Python", workspace)
        assert found.state == "bad" and "3.11 to 3.13" in found.found


def test_missing_and_old_packages_are_named(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line that installs them.

    KIND: boundary.
    """
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "nbval":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.26.4" if name == "numpy" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = finding("packages", workspace)
    assert found.state == "bad" and "pip install" in found.fix
    assert "missing: nbval" in found.found and "numpy 1.26.4 (needs 2.2)" in found.found


def test_a_python_with_another_copy_of_the_course_is_told(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two clones and one environment: each would judge with the other's code.

    KIND: boundary.
    """
    assert doctor.another_copy() is None
    there = tmp_path / "an other clone"
    origin = {"url": there.as_uri(), "dir_info": {"editable": True}}
    files = {"direct_url.json": json.dumps(origin)}
    monkeypatch.setattr(importlib.metadata.PathDistribution, "read_text", lambda self, name: files.get(name))
    assert doctor.another_copy() == there
    found = finding("packages", workspace)
    assert found.state == "bad" and str(there) in found.found and "pip install" in found.fix
    files["direct_url.json"] = json.dumps({"url": "https://example.org/tinyllm.whl"})
    assert doctor.another_copy() is None


def test_a_full_disk_and_a_missing_model_are_told(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one stops everything, the other two chapters.

    KIND: boundary.
    """
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage(10, 10, 2**20))
    assert finding("disk", workspace).state == "bad"
    monkeypatch.setattr("tinyllm.zoo.why_not", lambda: "it is not here")
    found = finding("model", workspace)
    assert found.state == "note" and "it is not here" in found.found and "tinyllm.zoo" in found.fix


def test_a_course_with_files_missing_is_broken(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A reference that is gone must be found here, not in the middle of a check.

    KIND: boundary.
    """
    monkeypatch.setattr(doctor, "reference", lambda file: doctor.ROOT / "gone" / file)
    found = finding("course", workspace)
    assert found.state == "bad" and "gone" in found.found
