"""PCG32 again, with a rotation by doubling the word: two copies of 32 bits side by side hold every rotation of them.

The generator is O'Neill's PCG-XSH-RR 64/32 (2014); the draws are those of the contract.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MULTIPLIER = 0x5851F42D4C957F2D
MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
PURPOSES = dict(zip(("init", "dropout", "shuffle", "sample", "mutation"), range(1, 6), strict=True))


def mix64(z: int) -> int:
    """SplitMix64's finaliser, over 64 bits."""
    z %= 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ z >> shift) * factor % 2**64
    return z ^ z >> 31


def child_seed(seed: int, purpose: int) -> int:
    """The 64-bit seed of the substream number `purpose` of `seed`."""
    return mix64(purpose * GOLDEN + seed)


class PCG32:
    """A stream of 32-bit draws, fixed by `seed` and the stream number `seq`."""

    def __init__(self, seed: int, seq: int = 54) -> None:
        self.seed = seed
        inc = (2 * seq + 1) % 2**64
        first = (inc + seed) % 2**64  # a step from state 0 leaves inc
        self._pair = ((first * MULTIPLIER + inc) % 2**64, inc)

    def next_u32(self) -> int:
        """The next draw, an integer in [0, 2^32)."""
        state, inc = self._pair
        self._pair = ((state * MULTIPLIER + inc) % 2**64, inc)
        word = (state ^ state // 2**18) // 2**27 % 2**32
        twice = word * (2**32 + 1)
        return (twice >> (state >> 59)) % 2**32

    def uniform(self) -> float:
        """The next uniform in [0, 1), from two draws."""
        bits = self.next_u32() // 2**5 * 2**26
        bits += self.next_u32() // 2**6
        return bits / 2**53

    def uniforms(self, n: int) -> NDArray[np.float64]:
        """The next `n` uniforms, float64 `[n]`. ValueError for a negative `n`."""
        if n < 0:
            raise ValueError(f"cannot draw {n} uniforms.")
        out = np.empty(n)
        for i in range(n):
            out[i] = self.uniform()
        return out

    def below(self, n: int) -> int:
        """The next integer in [0, n), without bias. ValueError unless 1 <= n <= 2^32."""
        if n < 1 or n > 2**32:
            raise ValueError(f"n is {n} and must lie in 1..2^32.")
        refused = 2**32 % n
        while True:
            draw = self.next_u32()
            if draw >= refused:
                return draw % n

    def shuffle(self, xs: MutableSequence[Any]) -> None:
        """Put `xs` in random order, in place."""
        i = len(xs)
        while i > 1:
            j = self.below(i)
            i -= 1
            item = xs[i]
            xs[i] = xs[j]
            xs[j] = item

    def state(self) -> tuple[int, int]:
        """`(state, inc)`."""
        return self._pair

    def set_state(self, state: tuple[int, int]) -> None:
        """Continue from a `state()`. ValueError for an even inc or a number that is not 64-bit."""
        for number in state:
            if number != number % 2**64:
                raise ValueError(f"{number} is not a 64-bit number.")
        if not state[1] & 1:
            raise ValueError(f"the increment {state[1]} is even and must be odd.")
        self._pair = (state[0], state[1])

    def substream(self, purpose: str) -> PCG32:
        """A generator of its own for one purpose. KeyError for one that does not exist."""
        return PCG32(child_seed(self.seed, PURPOSES[purpose]), PURPOSES[purpose])
