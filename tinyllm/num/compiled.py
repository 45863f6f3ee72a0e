"""`compiled`: Numba's `njit` with the settings that every compiled loop of this package shares.

Machine code is cached on disk, so a loop is compiled once per machine. Where no folder can be written (a read-only
install without a home folder) the loop is compiled anew in each process instead of failing. Nothing here allows
floating-point reassociation: a compiled loop gives the bits of the same loop in plain Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

# Intel's vector library, where it is installed, replaces `math.exp` by another function with other last bits.
os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F | None = None, **options: Any) -> Any:
    """Compile `function` with Numba on its first call; usable as `@compiled` or `@compiled(parallel=True)`.

    `options` go to `numba.njit`. Returns the compiled function. Source: Numba's documentation, "Caching".
    """
    if function is None:
        return lambda f: compiled(f, **options)
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # Numba found no folder in which to keep its cache
        return njit(**options)(function)
