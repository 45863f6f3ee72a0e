"""The learner's folder: nothing is lost, nothing is half written, one writes at a time."""

import json
import multiprocessing
import os
import sys
import zipfile
from pathlib import Path

import pytest

from ol.course import ROOT, module
from ol.start import start
from ol.workspace import KEPT_BACKUPS, Workspace, WorkspaceError

RNG = module("M06.3")
SPEC = module("L8.6")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


def test_the_folder_is_work_beside_the_book_or_what_ol_home_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the work is kept must not depend on where a command is typed.

    KIND: unit.
    """
    monkeypatch.delenv("OL_HOME", raising=False)
    assert Workspace().path == ROOT / "work"
    monkeypatch.setenv("OL_HOME", str(tmp_path / "elsewhere"))
    assert Workspace().path == tmp_path / "elsewhere"
    monkeypatch.setenv("OL_HOME", "~/mine")
    assert Workspace().path == Path("~/mine").expanduser()


@pytest.mark.parametrize("place", ["", "tinyllm", "ol", "tests/L8.6", ".."])
def test_the_folder_cannot_be_the_course_or_hold_it(place: str) -> None:
    """A stub written over the reference, or a backup of everything, would be a disaster.

    KIND: boundary.
    """
    with pytest.raises(WorkspaceError, match="OL_HOME"):
        Workspace((ROOT / place).resolve())


def test_a_pass_counts_until_a_file_is_edited(workspace: Workspace) -> None:
    """Progress is about the code as it is now, not as it was once.

    KIND: unit, smoke.
    """
    assert not workspace.started(RNG) and not workspace.passed(RNG)
    start(RNG, workspace)
    assert workspace.started(RNG) and not workspace.passed(RNG)
    workspace.record_pass(RNG)
    assert workspace.passed(RNG)
    file = workspace.file(RNG.files[0])
    before = file.read_bytes()
    file.write_bytes(before + b"# one more line\n")
    assert not workspace.passed(RNG)
    file.write_bytes(before)
    assert workspace.passed(RNG)


def test_a_pass_of_copies_that_are_older_than_the_files_does_not_count(workspace: Workspace) -> None:
    """A file that was saved while its tests ran was not what they ran.

    KIND: boundary.
    """
    start(RNG, workspace)
    digest = workspace.digest(RNG)
    workspace.write(workspace.file(RNG.files[0]), "edited = True\n")
    workspace.record_pass(RNG, digest)
    assert not workspace.passed(RNG)


def test_a_module_without_files_never_passes_here(workspace: Workspace) -> None:
    """Nothing was built, so nothing is proved.

    KIND: boundary.
    """
    assert not workspace.passed(module("L10.8"))


def test_a_failing_test_is_remembered_until_the_module_passes(workspace: Workspace) -> None:
    """`ol hint` speaks about the last check.

    KIND: unit.
    """
    start(RNG, workspace)
    workspace.record_failure(RNG, "test_one")
    assert workspace.state.failing == {"M06.3": "test_one"}
    workspace.record_failure(RNG, None)
    assert workspace.state.failing == {}
    workspace.record_failure(RNG, "test_two")
    workspace.record_pass(RNG)
    assert workspace.state.failing == {}


@pytest.mark.parametrize("junk", ["", "{", "[1, 2]", '{"passed": 3, "unknown": {}}', "null"])
def test_a_damaged_state_is_no_progress_and_no_error(workspace: Workspace, junk: str) -> None:
    """The file can be edited or damaged by anyone; the work itself is in other files.

    KIND: boundary.
    """
    start(RNG, workspace)
    path = workspace.path / ".ol" / "state.json"
    path.write_text(junk, encoding="utf-8")
    assert not workspace.passed(RNG)
    workspace.record_pass(RNG)
    assert workspace.passed(RNG)
    assert json.loads(path.read_text(encoding="utf-8"))["passed"].keys() == {"M06.3"}


def test_a_write_that_fails_leaves_what_was_there(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk in the middle of a write must not cost the file.

    KIND: boundary.
    """
    start(RNG, workspace)
    file = workspace.file(RNG.files[0])
    before = file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError, match="No space left"):
        workspace.write(file, "half")
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir() if path.name.endswith(".part")] == []


def test_write_new_never_overwrites(workspace: Workspace) -> None:
    """Not a file, and not what a dangling link stands for.

    KIND: boundary.
    """
    path = workspace.path / "a" / "b.py"
    assert workspace.write_new(path, "one") and not workspace.write_new(path, "two")
    assert path.read_text(encoding="utf-8") == "one"
    if sys.platform != "win32":
        link = workspace.path / "link.py"
        link.symlink_to(workspace.path / "nowhere")
        assert not workspace.write_new(link, "x") and link.is_symlink()


def test_a_read_only_folder_is_told_in_a_sentence(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be read can still be looked at; what must be written says how to get on.

    Refused by the system here, because tests may run as the superuser, who may write anywhere.

    KIND: boundary.
    """
    start(RNG, workspace)

    def refuse(*arguments: object, **named: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ol.workspace.tempfile.mkstemp", refuse)
    with pytest.raises(WorkspaceError, match=r"cannot be written .*writable"):
        start(SPEC, workspace)
    monkeypatch.setattr("ol.workspace.os.open", refuse)
    assert not workspace.passed(RNG) and workspace.started(RNG)
    for write in (lambda: workspace.record_pass(RNG), lambda: start(SPEC, workspace), workspace.backup):
        with pytest.raises(WorkspaceError, match=r"cannot be written .*writable"):
            write()


def test_a_file_in_the_way_is_told_in_a_sentence(tmp_path: Path) -> None:
    """OL_HOME may name a file, or a place under one.

    KIND: boundary.
    """
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for path in (tmp_path / "file", tmp_path / "file" / "under"):
        workspace = Workspace(path)
        assert not workspace.started(RNG) and workspace.state.passed == {}
        with pytest.raises(WorkspaceError, match="OL_HOME"):
            start(RNG, workspace)


def test_a_backup_holds_every_file_of_the_learner(workspace: Workspace) -> None:
    """Deleting the whole folder must cost nothing that was backed up.

    KIND: unit, smoke.
    """
    start(RNG, workspace)
    (workspace.path / "notes.txt").write_text("mine", encoding="utf-8")
    (workspace.path / "__pycache__").mkdir()
    (workspace.path / "__pycache__" / "junk.pyc").write_bytes(b"junk")
    pack = workspace.backup()
    assert workspace.path not in pack.parents
    with zipfile.ZipFile(pack) as held:
        names = set(held.namelist())
        assert {"notes.txt", "tinyllm/num/rng.py", "tests/m06-3-rng/test_mine.py"} <= names
        assert not any("__pycache__" in name or name.startswith(".ol") for name in names)
        assert held.read("tinyllm/num/rng.py") == workspace.file("tinyllm/num/rng.py").read_bytes()


def test_backups_are_made_when_something_changed_and_the_oldest_go(workspace: Workspace) -> None:
    """A backup before each run must not fill the disk.

    KIND: property.
    """
    with pytest.raises(WorkspaceError, match="nothing to back up"):
        workspace.backup()
    start(RNG, workspace)
    first = workspace.backup()
    assert workspace.backup() == first
    packs = [first]
    for i in range(KEPT_BACKUPS + 3):
        workspace.write(workspace.path / "notes.txt", str(i))
        packs.append(workspace.backup())
    assert sorted(workspace.backups.iterdir()) == packs[-KEPT_BACKUPS:]


def _hold(path: Path, ready: object, done: object) -> None:
    with Workspace(path).locked():
        ready.set()  # type: ignore[attr-defined]
        done.wait(30)  # type: ignore[attr-defined]


def test_two_writers_wait_for_each_other_and_a_long_one_is_named(workspace: Workspace) -> None:
    """Two terminals are normal; a hang must say what it waits for.

    KIND: boundary.
    """
    workspace.path.mkdir()
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(workspace.path, ready, done))
    other.start()
    try:
        assert ready.wait(30)
        with pytest.raises(WorkspaceError, match=f"process {other.pid}"), workspace.locked(wait=0.1):
            pass
        done.set()
        with workspace.locked(wait=30):
            pass
    finally:
        done.set()
        other.join(30)


def test_a_killed_writer_leaves_no_lock_behind(workspace: Workspace) -> None:
    """The system frees the lock of a process that dies, however it dies.

    KIND: boundary.
    """
    workspace.path.mkdir()
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(workspace.path, ready, done))
    other.start()
    assert ready.wait(30)
    other.kill()
    other.join(30)
    with workspace.locked(wait=5):
        pass


def _record_many(path: Path, name: str) -> None:
    for i in range(20):
        with Workspace(path).remember() as state:
            state.hints[f"{name} {i}"] = i


def test_what_two_processes_remember_at_once_is_all_there(workspace: Workspace) -> None:
    """Read, change and write happen under the lock, so no update is lost.

    KIND: property.
    """
    workspace.path.mkdir()
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_record_many, args=(workspace.path, name)) for name in ("one", "two")]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert len(workspace.state.hints) == 40
