"""The child process in which code that a learner wrote runs: `python -I ol/child.py`, started by `ol.sandbox` only.

It gives up what it does not need (memory, disk, other processes, files outside its own folder), loads the heavy
libraries, says that it is ready and waits for one job on its standard input. It may also be forked from a process that
has loaded them (`ol.nursery`), and then does all the rest alike. A job names the overlay and the tests to run. Results
go to the pipe that was its standard output, one JSON record a line; whatever the code prints goes to the log. The last
record is signed with a key that came with the job, over everything sent before it, and is only sent when pytest has
come back with every test that it collected, so a run that was cut short or broken off cannot pass for one that
finished.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # last, so that nothing there shadows a library

from ol import kernels, lockdown, overlay, tamper  # noqa: E402  (the path above comes first)

MESSAGE_CHARACTERS = 4000


class Channel:
    """The way back: one JSON record a line on a descriptor that nobody else is told of, and a signature at the end."""

    def __init__(self) -> None:
        descriptor = os.dup(1)
        os.dup2(2, 1)  # whatever else writes to standard output from now on lands in the log
        lock = threading.Lock()
        digest = hashlib.sha256()

        def send(record: dict[str, Any]) -> None:
            line = json.dumps(record).encode("ascii") + b"\n"
            with lock:
                digest.update(line)
                while line:
                    line = line[os.write(descriptor, line) :]

        def finish(key: bytes, record: dict[str, Any]) -> None:
            text = json.dumps(record, sort_keys=True)
            signature = hmac.new(key, digest.digest() + text.encode("ascii"), "sha256").hexdigest()
            send({"is": "finished", "record": text, "signature": signature})

        self.send = send
        self.finish = finish


def main(setting: dict[str, Any], sealed: tamper.Seal | None = None) -> None:
    """Get ready, wait for the job, do it, leave without any clean-up that the code could have planted.

    sealed: a seal of what was loaded in the process that this one was forked from.
    """
    notes = lockdown.give_up(setting)
    channel = Channel()
    jobs = os.fdopen(os.dup(0), "rb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    for name in setting["warm"]:
        importlib.import_module(name)
    if setting["warm"]:
        kernels.load()
    channel.send({"is": "ready", "notes": notes})
    line = jobs.readline()
    if not line.endswith(b"\n"):
        os._exit(0)  # nobody wants a result any more
    threading.Thread(target=_end_with, args=(jobs,), daemon=True).start()
    job = json.loads(line)
    key = bytes.fromhex(job.pop("key"))
    del line
    try:
        record = _work(job, setting, channel.send, sealed)
    except BaseException:  # also SystemExit: nothing that the code raises may look like an ordinary end
        channel.send({"is": "broken", "trace": traceback.format_exc()[-MESSAGE_CHARACTERS:]})
        os._exit(3)
    channel.finish(key, record)
    os._exit(0)


def _end_with(pipe: Any) -> None:
    """End this process when the one that started it ends, however it does: then the pipe closes."""
    pipe.read()
    os._exit(4)


def _work(
    job: dict[str, Any], setting: dict[str, Any], send: Callable[[dict[str, Any]], None], sealed: tamper.Seal | None
) -> dict[str, Any]:
    """Do what the job says; the result goes into the signed last record."""
    if job["call"]:  # a function of the course, as "ol.milestone:in_child"
        where, _, name = job["call"].partition(":")
        function = getattr(importlib.import_module(where), name)
    toys = _import_toys(Path(setting["folder"], "tests", "L8.6"))
    seal = tamper.Seal(toys, sealed)
    outside = lockdown.watch(setting, job["secret"])
    standing_in = overlay.Overlay.from_json(job["overlay"])
    standing_in.activate()
    loaded = _import_overlay(standing_in, send)
    result: Any = None
    if loaded:
        result = function(send, job["argument"]) if job["call"] else _pytest(job, setting, send, standing_in)
    broken = seal.broken() + tamper.changed_reference(ROOT, standing_in.files)
    if loaded and overlay.active() != dict(standing_in.files):
        broken.append("the import system")
    return {"tests": result, "loaded": loaded, "tampered": broken, "outside": outside}


def _import_toys(folder: Path) -> list[str]:
    """Import the toy models before anybody can put others in their place; their module names."""
    if not (folder / "_toy.py").is_file():
        return []
    sys.path.append(str(folder))
    importlib.import_module("_toy")
    return ["_toy"]


def _import_overlay(standing_in: overlay.Overlay, send: Callable[[dict[str, Any]], None]) -> bool:
    """Import each file of the overlay; the first that cannot be is reported. Whether all could."""
    for name, path in standing_in.files.items():
        try:
            importlib.import_module(name)
        except BaseException as fault:
            send({"is": "unloadable", "module": name, "file": str(path), **describe(fault, standing_in.files)})
            return False
    return True


def describe(fault: BaseException, files: Any) -> dict[str, Any]:
    """An exception as plain data: its type, its message, and the innermost line of a file of the overlay."""
    own = {str(path) for path in files.values()}
    where = None
    for frame in traceback.extract_tb(fault.__traceback__):
        if frame.filename in own:
            where = {"file": frame.filename, "line": frame.lineno, "function": frame.name, "text": frame.line or ""}
    if isinstance(fault, SyntaxError) and fault.filename in own:
        where = {"file": fault.filename, "line": fault.lineno, "function": "", "text": (fault.text or "").strip()}
    try:
        message = str(fault)
    except Exception:
        message = ""
    return {"type": type(fault).__name__, "message": message[:MESSAGE_CHARACTERS], "where": where}


def _pytest(
    job: dict[str, Any], setting: dict[str, Any], send: Callable[[dict[str, Any]], None], standing_in: overlay.Overlay
) -> dict[str, Any]:
    """Run pytest over the copied tests; what it says of them goes to the channel."""
    import pytest

    from ol.explain import Reporter

    folder = Path(setting["folder"])
    reporter = Reporter(send, job["select"], dict(standing_in.files), folder / "tests", job["brief"])
    arguments = ["-c", str(folder / "pytest.ini"), f"--rootdir={folder}", "-q", "--no-header", *job["arguments"]]
    sys.path.extend(str(path) for path in job["path"])  # last: a file there shadows no library
    code = pytest.main([*arguments, *job["files"]], plugins=[reporter])
    return reporter.summary(int(code))


def kernel(connection_file: str) -> None:
    """Be a notebook's kernel with the overlay at work; limits and Landlock are those of the process that started it."""
    watched = json.loads(os.environ.pop("OL_KERNEL"))
    from ipykernel.kernelapp import launch_new_instance

    lockdown.watch(watched, watched["secret"])
    overlay.Overlay.from_json(os.environ[overlay.VARIABLE]).activate()
    # Numba asks for a lock between processes, which would lie outside the folder: a cell would show that it gets none.
    warnings.filterwarnings("ignore", "Could not obtain multiprocessing lock")
    sys.argv = ["ol", "-f", connection_file]
    sys.path.insert(0, "")  # as every kernel does: the notebook's folder
    launch_new_instance()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        kernel(sys.argv[1])
    else:
        main(json.loads(os.environ.pop("OL_SETTING")))
