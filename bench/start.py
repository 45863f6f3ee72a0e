"""How long until the first token: import, load and one pass in a new process, before and after compiling.

    python bench/start.py [--json PATH] [--plot PATH]

Cold means an empty folder for compiled code; warm means that it was compiled before. The model's file is in the
system's cache in both. Peak memory is that of a process that writes 512 tokens.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _measure import Timing, arguments, finish, table

CHILD = """
import time; started = time.perf_counter()
from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams
from tinyllm.zoo import smollm2
imported = time.perf_counter()
model, tok = smollm2()
loaded = time.perf_counter()
generate(model, tok, "The capital of France is", SamplingParams(temperature=0, max_tokens=TOKENS))
done = time.perf_counter()
peak = 0
try:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
except ImportError:
    pass
import json
print(json.dumps({"import": imported - started, "load": loaded - imported, "first token": done - loaded,
                  "all": done - started, "peak_bytes": peak}))
"""


def child(cache: Path, tokens: int = 1) -> dict[str, float]:
    """The parts of one run in a new process that keeps its compiled code in `cache`."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD.replace("TOKENS", str(tokens))],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def plot(path: Path, warm: dict[str, Timing]) -> None:
    """Draw the table."""
    from tinyllm.explore.figure import PALETTE, new_figure

    figure, (ax,) = new_figure(height=1.8)
    left = 0.0
    for part, colour in (("import", "prompt"), ("load", "draft"), ("first token", "target")):
        ax.barh(0, warm[part].median, left=left, color=PALETTE[colour], label=part)
        left += warm[part].median
    ax.set(xlabel="seconds in a new process, compiled before", yticks=[])
    ax.legend(frameon=False, ncols=3)
    figure.savefig(path)


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = arguments(__doc__ or "")
    parser.set_defaults(repetitions=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        cold = child(cache)
        runs = [child(cache) for _ in range(options.repetitions)]
        long = child(cache, tokens=512)
    parts = ("import", "load", "first token", "all")
    warm = {part: Timing(tuple(run[part] for run in runs)) for part in parts}
    table(
        ["part", "cold s", "warm s", "spread"],
        [[part, f"{cold[part]:.2f}", f"{warm[part].median:.2f}", f"{warm[part].spread:.0%}"] for part in parts],
    )
    compiling = cold["first token"] - warm["first token"].median
    print(f"\ncompiling: {compiling:.1f} s")
    print(f"peak memory at 512 tokens: {long['peak_bytes'] / 1e6:.0f} MB")
    if options.plot:
        plot(options.plot, warm)
    finish(
        options,
        {
            "cold": cold,
            "warm": {part: t.as_json() for part, t in warm.items()},
            "compiling_s": compiling,
            "peak_bytes": long["peak_bytes"],
        },
    )


if __name__ == "__main__":
    main()
