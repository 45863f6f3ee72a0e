"""Fair timing: what is compared is run in alternation in one process, and medians are reported with their spread.

Machines are noisy, and a slow moment must hit all alike. What a pass over n tokens costs is measured here too, with the
two limits that no program on this machine can beat: memory's and arithmetic's.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np

from tinyllm.infer.generate import last_logits, new_cache
from tinyllm.xfmr import kernels
from tinyllm.xfmr.llama import Llama

ROWS = range(1, 17)  # tokens in a pass
CONTEXT = 64  # tokens before it
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


def alternate(
    jobs: Mapping[Any, Job], repetitions: int, warm_up: int = 2, tick: Callable[[float], Any] = lambda done: None
) -> dict[Any, Timing]:
    """Time each job `repetitions` times, all of them in turn, so that a slow moment of the machine hits all alike.

    `tick` is told between the repetitions which share of them is done.
    """
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
            tick((repetition + 1) / repetitions)
    finally:
        gc.enable()
    return {name: Timing(tuple(found)) for name, found in seconds.items()}


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": kernels.threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# What a pass costs.


@numba.njit(parallel=True, fastmath=True)
def _read(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in numba.prange(x.size):
        total += x[i]
    return total


def bandwidth() -> float:
    """Bytes a second that all threads together read from memory, at best."""
    x = np.ones(64_000_000, np.float32)  # 256 MB, far more than any cache holds
    with kernels.one_caller:
        return x.nbytes / alternate({"read": lambda: _read(x)}, 25)["read"].best


def float_peak() -> float:
    """Float32 operations a second in NumPy's matrix product, at best: as near the peak as software gets."""
    a = np.ones((1024, 1024), np.float32)
    return 2 * 1024**3 / alternate({"product": lambda: a @ a}, 25)["product"].best


def weights(model: Llama) -> tuple[int, int]:
    """Bytes and number of the weights that a pass reads."""
    shapes = model.config.shapes()
    count = sum(int(np.prod(shape)) for shape in shapes.values())
    return model.nbytes(), count


def pass_cost(model: Llama, repetitions: int, tick: Callable[[float], Any] = lambda done: None) -> dict[str, Any]:
    """What a pass over n tokens takes, for each n of ROWS, beside the machine's two limits; as plain data.

    "pass": by n as text, seconds as `Timing.as_json`. "bytes" of the weights that a pass reads, "flops_per_token",
    "bandwidth_bytes_per_s", "float32_flops_per_s", and the "machine". A pass computes logits for all its rows, as
    verification does, after `CONTEXT` tokens. `tick` as for `alternate`.
    """
    ids = list(range(100, 100 + CONTEXT + max(ROWS)))
    cache = new_cache(model, CONTEXT + max(ROWS))
    last_logits(model, ids[:CONTEXT], cache, 1)

    def run(n: int) -> None:
        last_logits(model, ids[CONTEXT : CONTEXT + n], cache, n)
        cache.truncate(CONTEXT)

    n_bytes, count = weights(model)
    return {
        "machine": machine(),
        "bytes": n_bytes,
        "flops_per_token": 2 * count,
        "bandwidth_bytes_per_s": bandwidth(),
        "float32_flops_per_s": float_peak(),
        "pass": {
            str(n): timing.as_json()
            for n, timing in alternate({n: partial(run, n) for n in ROWS}, repetitions, tick=tick).items()
        },
    }
