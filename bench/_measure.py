"""What every benchmark shares: fair timing, a word about the machine, and where results go.

Importing this module first keeps NumPy's own products fair: settings that slow OpenBLAS down are removed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(_name, None)

from tinyllm.explore.timing import Timing, alternate, machine  # noqa: E402  NumPy comes with it

__all__ = ["Timing", "alternate", "arguments", "finish", "machine", "table"]


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
