"""What a process that runs learners' code gives up: memory, disk, other processes, files outside its own folder.

`give_up` comes first, before any thread exists: limits of the operating system, and on Linux a Landlock rule set
(Mickaël Salaün, "Landlock: unprivileged access control", kernel documentation), which no code in the process can take
back. `watch` adds an audit hook (PEP 578): it refuses the same and more where the system offers nothing, gives each
refusal a sentence, and remembers them. What neither stops is listed in `ol.sandbox`.
"""

# ruff: noqa: PTH115, PTH117, PTH118, PTH119, PTH120, PTH123  (the hook runs inside calls that pathlib makes)

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CREATED_FILES = 1000


def give_up(setting: dict[str, Any]) -> list[str]:
    """Apply the limits of `setting` to this process and its children for good; what could not be, as sentences."""
    notes = []
    if sys.platform == "win32":
        return ["Windows: no limits on memory, processor time or file sizes."]
    import resource

    limits = [
        ("memory", "RLIMIT_AS", setting["memory_bytes"]),
        ("processor time", "RLIMIT_CPU", setting["cpu_seconds"]),
        ("file size", "RLIMIT_FSIZE", setting["file_bytes"]),
        ("open files", "RLIMIT_NOFILE", 1024),
        ("core dumps", "RLIMIT_CORE", 0),
    ]
    for what, name, value in limits:
        try:
            hard = resource.getrlimit(getattr(resource, name))[1]
            if hard != resource.RLIM_INFINITY:
                value = min(value, hard)
            resource.setrlimit(getattr(resource, name), (value, value))
        except (AttributeError, OSError, ValueError) as fault:
            notes.append(f"no limit on {what} ({fault}).")
    if sys.platform == "linux":
        try:
            _landlock(Path(setting["folder"]), setting["processes"])
        except OSError as fault:
            notes.append(f"no Landlock ({fault}); the audit hook alone guards files.")
    return notes


# Landlock, by its system calls: glibc has no functions for them. The numbers are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _REFER, _TRUNCATE = 1 << 0, 1 << 1, 1 << 13, 1 << 14
_CHANGES = sum(1 << bit for bit in range(4, 13))  # remove and make: directories, files, links, sockets, devices
_TCP = 0b11  # bind and connect
_SCOPES = 0b11  # abstract sockets and signals to processes outside
_NO_NEW_PRIVILEGES = 38


class _RuleSet(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _landlock(folder: Path, processes: bool) -> None:
    """Let this thread, and all that it starts from now on, write below `folder` only. OSError where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: Any) -> int:
        result = libc.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(result)

    version = call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    writing = _WRITE_FILE | _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _RuleSet(fs=writing)
    size = 8
    if not processes:  # a notebook's kernel is a program of its own, and is spoken to through sockets
        rules.fs |= _EXECUTE
        if version >= 4:
            rules.net, size = _TCP, 16
    if version >= 6:
        rules.scoped, size = _SCOPES if not processes else 0, 24
    ruleset = call(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for place, allowed in ((folder, writing), (Path(os.devnull), writing & (_WRITE_FILE | _TRUNCATE))):
            descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = _PathRule(allowed=allowed, parent=descriptor)
                call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0))
            finally:
                os.close(descriptor)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs refused")
        call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def watch(setting: dict[str, Any], secret: list[str]) -> list[str]:
    """Refuse, from now on and for good, what the code has no business with; the list grows by a sentence a refusal.

    Refused with PermissionError: writing, creating, moving and removing outside the folder of the run; reading the
    files and folders `secret`; starting processes, signalling others, and connections to other machines. Who may start
    processes may also end those.
    """
    folder = os.path.realpath(setting["folder"])
    hidden = tuple(os.path.realpath(path) for path in secret)
    refused: list[str] = []
    created = 0

    def refuse(sentence: str) -> None:
        if len(refused) < 20 and not any(known.startswith(sentence) for known in refused):
            at = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" ")[0]
            refused.append(f"{sentence}, while {at} was running" if at else sentence)
        raise PermissionError(sentence)

    def inside(path: Any, what: str, descriptor: Any = -1) -> None:
        if isinstance(path, int) or path is None:
            return  # an open file; opening it was looked at
        try:
            name = os.fsdecode(path)
            if isinstance(descriptor, int) and descriptor >= 0 and not os.path.isabs(name):
                name = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), name)
            # What a link is called matters for the link, what it leads to for the file: both must be inside.
            parent = os.path.realpath(os.path.dirname(name) or ".")
            real = os.path.realpath(name)
        except (OSError, TypeError, ValueError):
            refuse(f"it tried to {what} {path!r}, which cannot be looked up")
        if real == os.path.realpath(os.devnull):
            return
        for place in (parent, real):
            if place != folder and not place.startswith(folder + os.sep):
                refuse(f"it tried to {what} {name}, outside the folder of the run")

    def count() -> None:
        nonlocal created
        created += 1
        if created > CREATED_FILES:
            refuse(f"it tried to create more than {CREATED_FILES} files")

    def opened(args: tuple[Any, ...]) -> None:
        path, mode, flags = args[0], args[1], args[2]
        if isinstance(path, int):
            return
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags and flags & _WRITES)
        if writes:
            inside(path, "write to")
            if not os.path.lexists(path):
                count()
        elif hidden:
            with contextlib.suppress(OSError, TypeError, ValueError):
                real = os.path.realpath(os.fsdecode(path))
                if real.endswith(".pyc"):  # a module's compiled form tells as much as the module
                    real = _source_of(real)
                for place in hidden:
                    if real == place or real.startswith(place + os.sep):
                        refuse(f"it tried to read {os.path.basename(real)}, which is not for it")

    def made(args: tuple[Any, ...]) -> None:
        inside(args[0], "create", args[-1])
        count()

    def both(args: tuple[Any, ...], what: str) -> None:
        inside(args[0], what, args[2])
        inside(args[1], f"{what} to", args[3])

    def forbidden(sentence: str) -> Callable[[tuple[Any, ...]], None]:
        return lambda args: refuse(sentence)

    def signalled(args: tuple[Any, ...]) -> None:
        if args[0] not in (os.getpid(), 0) and not (setting["processes"] and _child(args[0])):
            refuse(f"it tried to send a signal to process {args[0]}")

    def connected(args: tuple[Any, ...]) -> None:
        address = args[1]
        host = address[0] if isinstance(address, tuple) else ""
        if not setting["processes"] or host not in ("127.0.0.1", "::1", "localhost", ""):
            refuse(f"it tried to connect to {address!r}")

    start = "it tried to start another process"
    checks: dict[str, Callable[[tuple[Any, ...]], None]] = {
        "open": opened,
        "os.mkdir": made,
        "os.remove": lambda args: inside(args[0], "remove", args[-1]),
        "os.rmdir": lambda args: inside(args[0], "remove", args[-1]),
        "os.rename": lambda args: both(args, "move"),
        "os.link": lambda args: both(args, "link"),
        "os.symlink": lambda args: made(args[1:]),
        "os.truncate": lambda args: inside(args[0], "cut"),
        "os.chmod": lambda args: inside(args[0], "change", args[-1]),
        "os.chown": lambda args: inside(args[0], "change", args[-1]),
        "os.utime": lambda args: inside(args[0], "change", args[-1]),
        "os.setxattr": lambda args: inside(args[0], "change"),
        "os.removexattr": lambda args: inside(args[0], "change"),
        "sqlite3.connect": lambda args: None if args[0] == ":memory:" else inside(args[0], "write to"),
        "os.kill": signalled,
        "os.killpg": signalled,
        "socket.connect": connected,
        "socket.sendto": connected,
        "socket.bind": connected,
    }
    if not setting["processes"]:
        for event in (
            *("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile"),
            *("os.startfile/2", "subprocess.Popen", "pty.spawn", "_winapi.CreateProcess"),
        ):
            checks[event] = forbidden(start)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        check = checks.get(event)
        if check is not None:
            check(args)

    sys.addaudithook(hook)
    return refused


def _child(pid: int) -> bool:
    """Whether this process started `pid`; also true of one that has ended, and where there is no /proc to ask."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return int(stat.read().rpartition(")")[2].split()[1]) == os.getpid()  # after the name: state, parent
    except (OSError, ValueError, IndexError):
        return True


def _source_of(compiled: str) -> str:
    """The source beside whose __pycache__ a compiled module lies."""
    folder, name = os.path.split(compiled)
    parent = os.path.dirname(folder) if os.path.basename(folder) == "__pycache__" else folder
    return os.path.join(parent, name.partition(".")[0] + ".py")
