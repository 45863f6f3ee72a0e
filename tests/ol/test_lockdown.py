"""The audit hook, where the hostile submissions do not reach: a run that may start processes, as notebooks do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ol.course import ROOT

PROGRAM = """
import os, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
from ol import lockdown
processes = sys.argv[3] == "True"
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
refused = lockdown.watch({"folder": sys.argv[2], "processes": processes}, [])
for pid in (os.getppid(), child.pid):
    try:
        os.kill(pid, 0)
    except PermissionError as fault:
        print("refused", pid == child.pid)
child.stdin.close()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc whose child a process is; Linux only")
@pytest.mark.parametrize(("processes", "refused"), [(True, ["False"]), (False, ["False", "True"])])
def test_who_may_start_processes_may_end_those_and_no_others(
    processes: bool, refused: list[str], tmp_path: Path
) -> None:
    """A notebook's kernel that is slow to end is ended by its starter, which is no attempt at anything.

    KIND: unit, boundary.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT), str(tmp_path), str(processes)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [word for one in refused for word in ("refused", one)]
