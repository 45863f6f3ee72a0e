"""The learner's folder: where their files are, what passed, backups, and one writer at a time.

Every write is whole or not at all, and what `ol` writes never replaces what a learner wrote. Progress is bound to the
contents of the files that passed: edit one and it no longer counts as passed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from ol.course import ROOT, Module, slug

OWN = ".ol"  # the sub-folder that ol keeps for itself
KEPT_BACKUPS = 20
LOCK_SECONDS = 10.0


class WorkspaceError(Exception):
    """The learner's folder cannot be read or written as it must; the message says what to do."""


@dataclass
class State:
    """What is remembered between runs. `passed`: module id to the digest of the files that passed."""

    passed: dict[str, str] = field(default_factory=dict)
    spoiled: dict[str, str] = field(default_factory=dict)  # module id to when its solution was shown before passing
    lent: dict[str, str] = field(default_factory=dict)  # module id to what the course lent when it passed
    failing: dict[str, str] = field(default_factory=dict)  # module id to the first test that failed last time
    faults: dict[str, str] = field(default_factory=dict)  # module id to why no test could run last time
    hints: dict[str, int] = field(default_factory=dict)  # "module test" to how many hints were shown
    grades: dict[str, float] = field(default_factory=dict)  # module id to the share of planted bugs caught last time
    milestones: dict[str, str] = field(default_factory=dict)  # milestone id to when it was reached


class Workspace:
    """A learner's folder: `home`, else the one named by OL_HOME, else work/ beside the book."""

    def __init__(self, home: Path | None = None) -> None:
        named = os.environ.get("OL_HOME")
        self.path = Path(home or (Path(named).expanduser() if named else ROOT / "work")).absolute()
        own = [ROOT / name for name in ("tinyllm", "ol", "tests", "book", "bench", ".git")]
        if self.path == ROOT or self.path in ROOT.parents or any(self.path.is_relative_to(folder) for folder in own):
            raise WorkspaceError(
                f"{self.path} holds the course or belongs to it; name a folder of its own with OL_HOME, such as "
                f"{ROOT / 'work'}."
            )

    # Where things are.

    def file(self, rel: str) -> Path:
        """The learner's version of a course file, such as "tinyllm/infer/spec.py"."""
        return self.path / rel

    def contract(self, rel: str) -> Path:
        """The `.pyi` beside the learner's version of a course file."""
        return self.file(rel).with_suffix(".pyi")

    def own_tests(self, module: Module) -> Path:
        """The folder for the tests that the learner writes for a module."""
        return self.path / "tests" / slug(module)

    def practice(self, chapter: str) -> Path:
        """The learner's copy of a chapter."""
        return self.path / "book" / f"{chapter}.ipynb"

    @property
    def backups(self) -> Path:
        """Beside the folder, not inside it, so that deleting the folder leaves them."""
        return self.path.with_name(self.path.name + ".backups")

    # What is there.

    def started(self, module: Module) -> bool:
        """Whether every file of the module is there."""
        try:
            return all(self.file(rel).is_file() for rel in module.files)
        except OSError as error:
            raise WorkspaceError(
                f"{self.path} cannot be read ({error.strerror}). Give yourself access, or name another with OL_HOME."
            ) from error

    def why_unwritable(self) -> str:
        """Why nothing can be written there, as a sentence that says what to do; "" where it can."""
        try:
            there = next(folder for folder in [self.path, *self.path.parents] if folder.exists())
            well = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
        except OSError:
            well = False
        return (
            "" if well else f"{self.path} cannot be written. Make it a folder of yours, or name another with OL_HOME."
        )

    def digest(self, module: Module) -> str:
        """SHA-256 of the module's files as they are now, 64 hex digits; FileNotFoundError when one is missing."""
        return digest_of({rel: self.file(rel) for rel in module.files})

    def passed(self, module: Module) -> bool:
        """Whether the files passed as they are now."""
        if not module.files or not self.started(module):
            return False
        return self.state.passed.get(module.id) == self.digest(module)

    # What is remembered.

    @property
    def state(self) -> State:
        """What is remembered, read anew; empty where there is nothing or the file does not hold it."""
        try:
            stored = json.loads((self.path / OWN / "state.json").read_text(encoding="utf-8"))
            known = {name: stored.get(name) for name in State.__dataclass_fields__}
            return State(**{name: dict(value) for name, value in known.items() if isinstance(value, dict)})
        except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError):
            return State()
        except OSError as error:
            raise WorkspaceError(
                f"{error.filename} cannot be read ({error.strerror}); give yourself access."
            ) from error

    def record_pass(self, module: Module, digest: str | None = None, lent: str = "") -> None:
        """Remember that the module passed. `digest`: of the copies that were run; the files as they are when None.

        lent: the modules of the reference that stood in, as text.
        """
        with self.remember() as state:
            state.passed[module.id] = digest or self.digest(module)
            state.lent.pop(module.id, None)
            if lent:
                state.lent[module.id] = lent
            state.failing.pop(module.id, None)
            state.faults.pop(module.id, None)

    def record_failure(self, module: Module, test: str | None, fault: str | None = None) -> None:
        """Remember for `ol hint` the test that failed, or, when no test could run, the `fault` that kept them."""
        with self.remember() as state:
            state.failing.pop(module.id, None)
            state.faults.pop(module.id, None)
            if fault is not None:
                state.faults[module.id] = fault
            if test is not None:
                state.failing[module.id] = test

    @contextmanager
    def remember(self) -> Iterator[State]:
        """The state to change: what the block leaves in it is written, with nobody else writing meanwhile."""
        with self.locked():
            path = self.path / OWN / "state.json"
            if path.exists() and not _is_json(path):
                path.replace(path.with_suffix(".json.broken"))  # kept for whoever edited it by hand
            state = self.state
            yield state
            self.write(path, json.dumps(asdict(state), indent=2) + "\n")

    # Writing.

    def write(self, path: Path, text: str) -> None:
        """Write a whole file or nothing, replacing what is there. WorkspaceError with a sentence when it cannot be."""
        write_whole(path, text)

    def write_new(self, path: Path, text: str) -> bool:
        """Write a file where there is none; False, and nothing touched, where there is one."""
        if path.exists() or path.is_symlink():
            return False
        write_whole(path, text)
        return True

    def backup(self) -> Path:
        """Pack the learner's files into a zip beside the folder; the newest one where nothing changed since.

        WorkspaceError when there is nothing to back up or no place to write.
        """
        files = sorted(self._learners_files())
        if not files:
            raise WorkspaceError(f"{self.path} holds nothing to back up yet.")
        digest = digest_of({path.relative_to(self.path).as_posix(): path for path in files})[:12]
        with self.locked():
            there = sorted(self.backups.glob("*.zip"))
            if there and there[-1].stem.endswith(digest):
                return there[-1]
            target = self.backups / f"{datetime.now():%Y-%m-%d-%H%M%S-%f}-{digest}.zip"
            part = target.with_suffix(".part")
            try:
                self.backups.mkdir(parents=True, exist_ok=True)
                with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as pack:
                    for path in files:
                        pack.write(path, path.relative_to(self.path).as_posix())
                part.replace(target)
                for old in there[: max(0, len(there) + 1 - KEPT_BACKUPS)]:
                    old.unlink(missing_ok=True)
            except OSError as error:
                with suppress(OSError):
                    part.unlink(missing_ok=True)
                raise WorkspaceError(
                    f"no backup could be written to {self.backups} ({error.strerror}); make that place writable."
                ) from error
        return target

    def _learners_files(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self.path):
            folders[:] = [name for name in folders if name not in (OWN, "__pycache__", ".ipynb_checkpoints")]
            for name in names:
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink() and path.suffix not in (".pyc", ".part"):
                    yield path

    @contextmanager
    def locked(self, wait: float = LOCK_SECONDS) -> Iterator[None]:
        """Hold the folder alone. The system frees the lock of a process that dies, so it is never left behind.

        WorkspaceError naming who holds it after `wait` seconds.
        """
        path = self.path / OWN / "lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Opened, never created anew or deleted: two processes must lock the same file.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise WorkspaceError(
                f"{self.path} cannot be written ({error.strerror}). Make the folder writable, or name another with "
                f"OL_HOME."
            ) from error
        with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
            deadline = time.monotonic() + wait
            while not _try_lock(file.fileno()):
                if time.monotonic() > deadline:
                    file.seek(1)
                    holder = file.read().strip() or "another run of ol"
                    raise WorkspaceError(
                        f"{holder} is writing to {self.path}. Wait until it is done and try again; if it hangs, end it."
                    )
                time.sleep(0.02)
            file.seek(1)  # the first byte is the one that is locked
            file.truncate()
            file.write(f"`ol {' '.join(sys.argv[1:3])}` (process {os.getpid()})")
            file.flush()
            try:
                yield
            finally:
                _unlock(file.fileno())


def write_whole(path: Path, text: str) -> None:
    """Write a whole file or nothing, replacing what is there. WorkspaceError with a sentence when it cannot be."""
    part: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        Path(part).chmod(0o644)
        Path(part).replace(path)
        part = None
    except OSError as error:
        raise WorkspaceError(
            f"{path} cannot be written ({error.strerror}). Make the folder writable, free some space, or name "
            f"another folder with OL_HOME."
        ) from error
    finally:
        if part is not None:
            with suppress(OSError):
                Path(part).unlink()


def digest_of(files: dict[str, Path]) -> str:
    """SHA-256, 64 hex digits, of files under the names given; the same files in any order give the same digest."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{hashlib.sha256(files[name].read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except ValueError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
