"""The KV cache as a pair of arrays a layer, each layer an object that looks after itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


class _Layer:
    """Keys and values of one layer, and how many positions of them are written."""

    def __init__(self, shape: tuple[int, int, int, int], dtype: np.dtype[Any]) -> None:
        self.pair = (np.zeros(shape, dtype), np.zeros(shape, dtype))
        self.n = 0

    def append(self, *new: NDArray[np.floating]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        t = new[0].shape[2]
        for held, fresh in zip(self.pair, new, strict=True):
            held[:, :, self.n : self.n + t, :] = fresh
        self.n += t
        keys, values = (held[:, :, : self.n, :].astype(np.float32) for held in self.pair)
        return keys, values


class KVCache:
    """Keys and values, `[batch, n_kv_heads, max_len, d_head]` of each for each layer, zeros until written."""

    def __init__(
        self,
        n_layers: int,
        n_kv_heads: int,
        d_head: int,
        max_len: int,
        batch: int = 1,
        dtype: DTypeLike = np.float32,
    ) -> None:
        if any(size < 1 for size in (n_layers, n_kv_heads, d_head, max_len, batch)):
            raise ValueError("no size of a cache may be below 1.")
        if np.dtype(dtype).kind != "f":
            raise ValueError(f"{np.dtype(dtype)} is no floating-point type.")
        self.n_layers, self.n_kv_heads, self.d_head, self.max_len = n_layers, n_kv_heads, d_head, max_len
        self.batch, self.dtype = batch, np.dtype(dtype)
        self._layers = [_Layer((batch, n_kv_heads, max_len, d_head), self.dtype) for _ in range(n_layers)]

    @property
    def k(self) -> list[NDArray[np.floating]]:
        """The keys of each layer."""
        return [layer.pair[0] for layer in self._layers]

    @property
    def v(self) -> list[NDArray[np.floating]]:
        """The values of each layer."""
        return [layer.pair[1] for layer in self._layers]

    def update(
        self, layer: int, k_new: ArrayLike, v_new: ArrayLike
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Append keys and values to `layer`; return all it holds as float32. ValueError leaves it unchanged."""
        if layer < 0 or layer >= self.n_layers:
            raise ValueError(f"layer {layer} does not exist.")
        keys, values = np.asarray(k_new), np.asarray(v_new)
        if keys.shape != values.shape or keys.ndim != 4:
            raise ValueError(f"{keys.shape} and {values.shape} are not the same four axes.")
        batch, heads, t, d = keys.shape
        if (batch, heads, d) != (self.batch, self.n_kv_heads, self.d_head) or not t:
            raise ValueError(f"{keys.shape} is not what this cache takes.")
        if self._layers[layer].n + t > self.max_len:
            raise ValueError(f"no room for {t} more in {self.max_len}.")
        return self._layers[layer].append(keys, values)

    def seq_len(self, layer: int | None = None) -> int:
        """Positions held by every layer, or by one."""
        return min(each.n for each in self._layers) if layer is None else self._layers[layer].n

    def positions(self, t: int) -> NDArray[np.int64]:
        """The positions of the next `t` tokens, int64 `[t]`."""
        return np.array([self.seq_len() + i for i in range(t)], dtype=np.int64)

    def mask(self, t: int) -> NDArray[np.bool_]:
        """Which columns the next `t` rows may see, bool `[t, seq_len() + t]`."""
        held = np.ones((t, self.seq_len()), dtype=bool)
        return np.hstack([held, np.tril(np.ones((t, t), dtype=bool))])

    def truncate(self, n: int) -> None:
        """Forget every position from `n` on. ValueError unless 0 <= n <= seq_len()."""
        if n not in range(self.seq_len() + 1):
            raise ValueError(f"{n} is not between 0 and {self.seq_len()}.")
        for layer in self._layers:
            layer.n = n

    def nbytes(self) -> int:
        """Bytes set aside for keys and values together, used or not."""
        return sum(held.nbytes for layer in self._layers for held in layer.pair)

    def resized(self, max_len: int) -> KVCache:
        """A copy with room for `max_len` positions. ValueError when it holds more than that."""
        other = KVCache(self.n_layers, self.n_kv_heads, self.d_head, max_len, self.batch, self.dtype)
        for i, layer in enumerate(self._layers):
            if layer.n:
                other.update(i, *(held[:, :, : layer.n] for held in layer.pair))
        return other
