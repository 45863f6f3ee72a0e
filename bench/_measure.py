"""What every benchmark shares: fair timing, a word about the machine, and where results go.

Machines are noisy, so what is compared is run in alternation in one process, and medians are reported with their
spread. Importing this module first keeps NumPy's own products fair: settings that slow OpenBLAS down are removed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(_name, None)

Job = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Seconds of the repetitions of one job."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle repetition."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The fastest repetition: what the machine can do when nothing disturbs it."""
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Half the range between the quartiles, as a share of the median."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / 2 / self.median

    def as_json(self) -> dict[str, float]:
        """The same as plain numbers."""
        return {"median_s": self.median, "best_s": self.best, "spread": self.spread, "repetitions": len(self.seconds)}


def alternate(jobs: Mapping[Any, Job], repetitions: int, warm_up: int = 2) -> dict[Any, Timing]:
    """Time each job `repetitions` times, all of them in turn, so that a slow moment of the machine hits all alike."""
    for _ in range(warm_up):
        for job in jobs.values():
            job()
    seconds: dict[Any, list[float]] = {name: [] for name in jobs}
    order = list(jobs)
    gc.disable()
    try:
        for repetition in range(repetitions):
            for name in order if repetition % 2 == 0 else reversed(order):
                started = time.perf_counter()
                jobs[name]()
                seconds[name].append(time.perf_counter() - started)
    finally:
        gc.enable()
    return {name: Timing(tuple(found)) for name, found in seconds.items()}


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    import numba
    import numpy

    from tinyllm.xfmr import kernels

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": kernels.threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "numba": numba.__version__,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def arguments(about: str) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers there")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="draw them there (PNG)")
    parser.add_argument("--repetitions", type=int, default=15, help="of each job, in alternation")
    return parser


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table whose first column is text and the others numbers."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        print("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))))


def finish(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Say which machine it was, and write the JSON if it is wanted."""
    found = {"machine": machine(), **found}
    print("\n" + ", ".join(f"{key} {value}" for key, value in found["machine"].items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"written to {options.json}", file=sys.stderr)
