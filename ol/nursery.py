"""A process that has loaded what runs of learners' code need, and forks one child a run.

Loading NumPy, Numba, pytest and Hypothesis takes over a second, a fork of a process that has them a few milliseconds;
grading makes dozens of runs. The process that forks runs trusted code only and does what it is told on a socket: fork,
say how a child ended, let it go. A forked child then takes the road of one started afresh, `ol.child.main`: its own
limits, Landlock rules, audit hook, folder and environment. On Linux only: elsewhere system libraries do not survive a
fork, and each run gets a new process.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # last, so that nothing there shadows a library

from ol import child, kernels, tamper  # noqa: E402  (the path above comes first)
from ol.sandbox import MARK, PREFIX, WARM, end, environment_for, sweep  # noqa: E402

AVAILABLE = sys.platform == "linux"
_MESSAGE_BYTES = 1 << 16
_END_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


class Nursery:
    """The process that forks, seen from outside. Use it as a context manager: it ends with the block.

    `warm`: modules to load besides those that every run needs; never those that are judged. Threads may share it.
    OSError where it cannot be started.
    """

    def __init__(self, warm: Iterable[str] = ()) -> None:
        sweep()
        self._lock = threading.Lock()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")).resolve()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            kernels.lend(self.folder / "numba", model=False)
            environment = environment_for(self.folder, model=False)
            environment["OPENBLAS_NUM_THREADS"] = "1"  # its threads would not survive a fork, and toys are small
            with theirs, (self.folder / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-B", str(Path(__file__).resolve()), str(theirs.fileno()), *WARM, *warm],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            self._socket.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process, and any child of it that is left."""
        self._socket.close()
        end(self._process, self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def fork(self, setting: dict[str, Any], environment: dict[str, str], folder: Path) -> Forked:
        """A child with this setting and environment, working in `folder`, whose `log` there it writes."""
        job_out, job_in = os.pipe()
        records_out, records_in = os.pipe()
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        given = [job_out, records_in, log]
        try:
            asked = {"do": "fork", "setting": setting, "environment": environment, "folder": str(folder)}
            answer = self.ask(asked, given)
        except BaseException:
            os.close(job_in)
            os.close(records_out)
            raise
        finally:
            for descriptor in given:
                os.close(descriptor)
        return Forked(self, answer["pid"], job_in, records_out)

    def ask(self, what: dict[str, Any], descriptors: Iterable[int] = ()) -> dict[str, Any]:
        """Send one request and wait for its answer; OSError when the process is gone."""
        packed = array.array("i", descriptors)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)] if packed else []
        with self._lock:
            self._socket.sendmsg([json.dumps(what).encode("utf-8")], rights)
            answer = self._socket.recv(_MESSAGE_BYTES)
        if not answer:
            raise ConnectionResetError("the process that forks has ended")
        found: dict[str, Any] = json.loads(answer)
        return found


class Forked:
    """A forked child, to be handled like a `subprocess.Popen`: it keeps its process id until it is let go."""

    def __init__(self, nursery: Nursery, pid: int, job: int, records: int) -> None:
        self.pid = pid
        self.stdin = os.fdopen(job, "wb")
        self.stdout = os.fdopen(records, "rb")
        self._nursery = nursery
        self._code: int | None = None
        self._gone = False

    def poll(self) -> int | None:
        """Its exit code, the negative number of the signal that ended it, or None while it runs."""
        if self._code is None and not self._gone:
            with contextlib.suppress(OSError):
                self._code = self._nursery.ask({"do": "poll", "pid": self.pid})["code"]
        return self._code

    def wait(self, timeout: float) -> int:
        """Its exit code once it has ended; subprocess.TimeoutExpired when it has not."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked child", timeout)
            time.sleep(0.002)
        return code

    def kill(self) -> None:
        """End it, and let it go."""
        if not self._gone:
            with contextlib.suppress(OSError):
                self._code = self._nursery.ask({"do": "end", "pid": self.pid})["code"]
            self._gone = True


# Inside the process that forks.


def serve(descriptor: int, warm: Iterable[str]) -> None:
    """Load what is to be warm, then do what comes on the socket until its other end is closed."""
    for name in warm:
        importlib.import_module(name)
    kernels.load()
    tamper.remember_reference(ROOT)
    sealed = tamper.Seal()
    gc.collect()
    gc.freeze()  # children share what is never collected
    line = socket.socket(fileno=descriptor)
    while True:
        message, rights, _, _ = line.recvmsg(_MESSAGE_BYTES, socket.CMSG_SPACE(3 * array.array("i").itemsize))
        if not message:
            os._exit(0)
        asked = json.loads(message)
        if asked["do"] == "fork":
            received = array.array("i", rights[0][2])
            pid = os.fork()
            if pid == 0:
                try:
                    line.close()
                    _settle(received, asked["environment"], asked["folder"])
                    child.main(asked["setting"], sealed)
                finally:
                    os._exit(3)
            for given in received:
                os.close(given)
            answer: dict[str, Any] = {"pid": pid}
        else:
            answer = {"code": _ended(asked["pid"], asked["do"] == "end")}
        line.send(json.dumps(answer).encode("utf-8"))


def _settle(received: Iterable[int], environment: dict[str, str], folder: str) -> None:
    """In the fork: be a process of its own, with the pipes, the log, the environment and the folder that it got."""
    os.setsid()
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    for place, given in enumerate(received):
        os.dup2(given, place)
        os.close(given)
    sys.stdout.flush()
    _mark(environment[MARK])
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
    import numba

    numba.config.CACHE_DIR = environment["NUMBA_CACHE_DIR"]


def _mark(name: str) -> None:
    """Write the run's mark where /proc shows it, in place of the mark that this process was started with.

    What others see of a process's environment is the memory it was started with; all marks have the same length.
    """
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    place, value = getenv(MARK.encode()), name.encode()
    if place is None or len(ctypes.string_at(place)) != len(value):
        raise ValueError(f"the mark {name!r} does not fit over the one of the process that forks")
    ctypes.memmove(place, value, len(value))


def _ended(pid: int, now: bool) -> int | None:
    """How a child ended, None while it runs; with `now` it is ended, and its process id let go."""
    if now:
        for send in (os.killpg, os.kill):
            with contextlib.suppress(OSError):
                send(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2:])
