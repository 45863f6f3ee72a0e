"""Is this machine ready: Python, packages, notebook kernel, model, disk, the learner's folder, the course itself.

Each finding is a line, and each line that is not well says what to type.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ol.course import MODULES, ROOT, reference, tests_folder
from ol.workspace import Workspace, WorkspaceError

PYTHONS = ((3, 11), (3, 13))  # the first and the last version that the course is tested on
NEEDED_BYTES = 500 * 2**20  # the model, backups, and room to run
INSTALL = 'python -m pip install -c constraints.txt -e ".[book,test]"'


class Finding(NamedTuple):
    """One thing that was looked at. `state`: "ok", "note" (you can work without) or "bad"; `fix`: what to type."""

    what: str
    state: str
    found: str
    fix: str = ""


def examine(workspace: Workspace) -> list[Finding]:
    """Look at everything; nothing is changed, no network is used."""
    return [*_python(), *_packages(), *_kernel(), *_model(), *_disk(workspace), *_folder(workspace), *_course()]


def _python() -> Iterator[Finding]:
    version = ".".join(str(n) for n in sys.version_info[:3])
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        yield Finding("Python", "ok", f"{version}, {sys.executable}")
    else:
        wanted = " to ".join(".".join(str(n) for n in version) for version in PYTHONS)
        yield Finding("Python", "bad", f"{version}; the course needs {wanted}", "make lab PYTHON=/path/to/python3.12")


def _packages() -> Iterator[Finding]:
    """What the course declares it needs, the part for changing the course left out."""
    try:
        declared = importlib.metadata.requires("tinyllm") or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding("packages", "bad", "the course is not installed in this Python", INSTALL)
        return
    if other := another_copy():
        yield Finding("packages", "bad", f"this Python runs the copy of the course in {other}", INSTALL)
        return
    missing, old, known = [], [], 0
    for line in declared:
        if "extra ==" in line and re.search(r"extra == ['\"]dev['\"]", line):
            continue
        name = re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0]
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        known += 1
        least = re.search(r">=\s*([\d.]+)", line)
        if least and _numbers(version) < _numbers(least[1]):
            old.append(f"{name} {version} (needs {least[1]})")
    if missing or old:
        what = [f"missing: {', '.join(missing)}"] if missing else []
        what += [f"too old: {', '.join(old)}"] if old else []
        yield Finding("packages", "bad", "; ".join(what), INSTALL)
    else:
        yield Finding("packages", "ok", f"all {known} that reading and checking need")


def another_copy() -> Path | None:
    """The folder of the course that this Python has installed, where that is not this folder: it would be mixed up."""
    try:
        origin = importlib.metadata.distribution("tinyllm").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    url = json.loads(origin or "{}").get("url", "")  # PEP 610
    if url == ROOT.as_uri():
        return None
    from urllib.parse import urlsplit
    from urllib.request import url2pathname  # slow to load, and every command asks

    place = urlsplit(url)
    folder = Path(url2pathname(place.path)).resolve()
    return folder if place.scheme == "file" and folder != ROOT else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.partition("+")[0])[:3])


def _kernel() -> Iterator[Finding]:
    """Notebooks run in the kernel named python3; it must be this Python, or they see other packages."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        yield Finding("kernel", "bad", "no notebook kernel is installed", INSTALL)
        return
    fix = "python -m ipykernel install --sys-prefix"
    try:
        command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        yield Finding("kernel", "bad", "there is no kernel named python3", fix)
        return
    resolved = shutil.which(command) or command
    same = Path(command).name == command or Path(resolved).parent == Path(sys.executable).parent
    if same:
        yield Finding("kernel", "ok", "python3 runs this Python")
    else:
        yield Finding("kernel", "bad", f"python3 runs {resolved}, not this Python", fix)


def _model() -> Iterator[Finding]:
    from tinyllm.zoo import why_not

    reason = why_not()
    if reason is None:
        yield Finding("model", "ok", "SmolLM2 is here")
    else:
        yield Finding("model", "note", f"chapter 13 and `ol milestone` need it: {reason}", "python -m tinyllm.zoo")


def _disk(workspace: Workspace) -> Iterator[Finding]:
    if workspace.why_unwritable():
        return  # told of the folder itself, and its parents may not even be readable
    there = next(folder for folder in [workspace.path, *workspace.path.parents] if folder.exists())
    free = shutil.disk_usage(there).free
    if free >= NEEDED_BYTES:
        yield Finding("disk", "ok", f"{free / 2**30:.1f} GB free")
    else:
        yield Finding("disk", "bad", f"{free / 2**20:.0f} MB free, {NEEDED_BYTES / 2**20:.0f} wanted", f"df -h {there}")


def _folder(workspace: Workspace) -> Iterator[Finding]:
    if unwritable := workspace.why_unwritable():
        yield Finding("your folder", "bad", unwritable, f"ls -ld {workspace.path}")
        return
    if not workspace.path.exists():
        yield Finding("your folder", "note", f"{workspace.path} is not there yet", "ol start L8.6")
        return
    try:
        with workspace.locked(wait=2.0):
            pass
    except WorkspaceError as error:
        yield Finding("your folder", "bad", str(error), f"ls -ld {workspace.path}")
        return
    yield Finding("your folder", "ok", f"{workspace.path}")


def _course() -> Iterator[Finding]:
    """All of the course's files are there and, where git can tell, as they were released."""
    wanted = [reference(file) for module in MODULES.values() for file in module.files]
    wanted += [tests_folder(module) for module in MODULES.values() if module.files]
    if missing := [path for path in wanted if not path.exists()]:
        names = ", ".join(str(path.relative_to(ROOT)) for path in missing)
        yield Finding("course", "bad", f"missing: {names}", f"git -C {ROOT} checkout -- tinyllm tests")
        return
    edited = _edited()
    if edited:
        names = ", ".join(edited[:3]) + (f" and {len(edited) - 3} more" if len(edited) > 3 else "")
        yield Finding("course", "note", f"edited: {names}; your own code belongs in your folder", "git diff --stat")
    else:
        yield Finding("course", "ok", f"{ROOT}")


def _edited() -> list[str]:
    """Files of the course that git knows otherwise; none where git or its folder is absent."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return []
    command = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", "tinyllm", "tests", "ol"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # only looking: take no lock
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)
    return [line[3:] for line in done.stdout.splitlines()] if done.returncode == 0 else []
