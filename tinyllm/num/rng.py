"""PCG32: a random generator small enough to port to any language, with named substreams.

The generator is PCG-XSH-RR 64/32 (O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
Algorithms for Random Number Generation", 2014); the seed of a substream goes through SplitMix64's finaliser (Steele,
Lea and Flood, 2014). The same seed gives the same draws on every machine, to the bit.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MULTIPLIER = 6364136223846793005
MASK32, MASK64 = 2**32 - 1, 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, odd
PURPOSES = {"init": 1, "dropout": 2, "shuffle": 3, "sample": 4, "mutation": 5}


def mix64(z: int) -> int:
    """Scramble a 64-bit integer so that near inputs give unrelated outputs (SplitMix64's finaliser)."""
    z &= MASK64
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK64
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK64
    return z ^ z >> 31


def child_seed(seed: int, purpose: int) -> int:
    """The 64-bit seed of the substream number `purpose` of `seed`."""
    return mix64(seed + purpose * GOLDEN)


class PCG32:
    """A stream of 32-bit draws, fixed by `seed` (taken mod 2^64) and the stream number `seq`."""

    def __init__(self, seed: int, seq: int = 54) -> None:
        self.seed = seed
        self._inc = (seq << 1 | 1) & MASK64
        self._state = 0
        self.next_u32()
        self._state = self._state + seed & MASK64
        self.next_u32()

    def next_u32(self) -> int:
        """The next draw, an integer in [0, 2^32). The output is a hash of the state before the step."""
        old = self._state
        self._state = old * MULTIPLIER + self._inc & MASK64
        xorshifted = (old >> 18 ^ old) >> 27 & MASK32
        rotation = old >> 59
        return (xorshifted >> rotation | xorshifted << (-rotation & 31)) & MASK32

    def uniform(self) -> float:
        """The next uniform in [0, 1), a multiple of 2^-53, made from two draws."""
        high, low = self.next_u32() >> 5, self.next_u32() >> 6
        return (high * 2**26 + low) * 2.0**-53

    def uniforms(self, n: int) -> NDArray[np.float64]:
        """The next `n` uniforms, float64 `[n]`. ValueError for a negative `n`."""
        if n < 0:
            raise ValueError(f"uniforms({n}): the number of draws must be >= 0.")
        return np.array([self.uniform() for _ in range(n)], dtype=np.float64)

    def below(self, n: int) -> int:
        """The next integer in [0, n), without bias: draws from the incomplete last block are redrawn.

        ValueError unless 1 <= n <= 2^32.
        """
        if not 1 <= n <= 2**32:
            raise ValueError(f"below({n}): n must be from 1 to 2**32.")
        threshold = (2**32 - n) % n
        while (draw := self.next_u32()) < threshold:
            pass
        return draw % n

    def shuffle(self, xs: MutableSequence[Any]) -> None:
        """Put `xs` in random order, in place (Fisher and Yates, from the last item down)."""
        for i in range(len(xs) - 1, 0, -1):
            j = self.below(i + 1)
            xs[i], xs[j] = xs[j], xs[i]

    def state(self) -> tuple[int, int]:
        """`(state, inc)`: everything the next draw depends on."""
        return self._state, self._inc

    def set_state(self, state: tuple[int, int]) -> None:
        """Continue from a `state()` taken before. ValueError for an even inc or a number that is not 64-bit."""
        value, inc = state
        if not (0 <= value <= MASK64 and 0 <= inc <= MASK64):
            raise ValueError(f"state {state} does not fit: both numbers must be from 0 to 2**64 - 1.")
        if inc % 2 == 0:
            raise ValueError(f"inc is {inc}; PCG32 needs an odd inc, else it repeats early.")
        self._state, self._inc = value, inc

    def substream(self, purpose: str) -> PCG32:
        """A generator of its own for one purpose: "init", "dropout", "shuffle", "sample" or "mutation".

        It depends on this generator's seed only, never on how much was drawn. KeyError for another purpose.
        """
        number = PURPOSES[purpose]
        return PCG32(child_seed(self.seed, number), seq=number)
