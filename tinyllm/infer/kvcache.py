"""The KV cache: keys and values of the positions fed so far, so that a pass computes only the new ones.

Preallocated, written in order, and cut back with `truncate`: dropping rejected drafts is forgetting the last few
columns. What is returned is what is stored, so a float16 cache gives rounded values to every reader alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


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
        sizes = {"n_layers": n_layers, "n_kv_heads": n_kv_heads, "d_head": d_head, "max_len": max_len, "batch": batch}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} is {size}; every size of a cache is at least 1.")
        if np.dtype(dtype).kind != "f":
            raise ValueError(f"dtype is {np.dtype(dtype)}; a cache holds floats, such as float32 or float16.")
        self.n_layers, self.n_kv_heads, self.d_head = n_layers, n_kv_heads, d_head
        self.max_len, self.batch, self.dtype = max_len, batch, np.dtype(dtype)
        shape = (batch, n_kv_heads, max_len, d_head)
        self.k = [np.zeros(shape, self.dtype) for _ in range(n_layers)]
        self.v = [np.zeros(shape, self.dtype) for _ in range(n_layers)]
        self._filled = [0] * n_layers

    def update(
        self, layer: int, k_new: ArrayLike, v_new: ArrayLike
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Append `[batch, n_kv_heads, t, d_head]` keys and values to `layer`; return all it holds.

        Both results are float32 `[batch, n_kv_heads, n, d_head]`, as stored; do not write to them, with a float32
        cache they are the cache. ValueError for a bad layer or shape, t = 0, or more than max_len positions; the
        cache is then unchanged.
        """
        if not 0 <= layer < self.n_layers:
            raise ValueError(f"layer is {layer}; this cache has layers 0 to {self.n_layers - 1}.")
        k_new, v_new = np.asarray(k_new), np.asarray(v_new)
        t = k_new.shape[2] if k_new.ndim == 4 else 0
        expected = (self.batch, self.n_kv_heads, t, self.d_head)
        if k_new.shape != expected or v_new.shape != expected or t == 0:
            raise ValueError(
                f"keys have shape {k_new.shape} and values {v_new.shape}; both must be "
                f"({self.batch}, {self.n_kv_heads}, t, {self.d_head}) with t >= 1."
            )
        start = self._filled[layer]
        end = start + t
        if end > self.max_len:
            raise ValueError(f"{t} positions after {start} do not fit in a cache of {self.max_len}.")
        self.k[layer][:, :, start:end] = k_new
        self.v[layer][:, :, start:end] = v_new
        self._filled[layer] = end
        held_k, held_v = self.k[layer][:, :, :end], self.v[layer][:, :, :end]  # [batch, n_kv_heads, n, d_head]
        return held_k.astype(np.float32, copy=False), held_v.astype(np.float32, copy=False)

    def seq_len(self, layer: int | None = None) -> int:
        """Positions held by every layer, or by one. During a forward pass the layers differ; between passes not."""
        return min(self._filled) if layer is None else self._filled[layer]

    def positions(self, t: int) -> NDArray[np.int64]:
        """The positions of the next `t` tokens, int64 `[t]`: they go on from `seq_len()`."""
        start = self.seq_len()
        return np.arange(start, start + t, dtype=np.int64)

    def mask(self, t: int) -> NDArray[np.bool_]:
        """Which columns the next `t` rows may see, bool `[t, seq_len() + t]`: a row sees its own column and before."""
        start = self.seq_len()
        return np.tri(t, start + t, start, dtype=np.bool_)

    def truncate(self, n: int) -> None:
        """Forget every position from `n` on. ValueError unless 0 <= n <= seq_len()."""
        if not 0 <= n <= self.seq_len():
            raise ValueError(f"truncate({n}): this cache holds {self.seq_len()} positions; n must be from 0 to that.")
        self._filled = [n] * self.n_layers

    def nbytes(self) -> int:
        """Bytes set aside for keys and values together, used or not."""
        return sum(a.nbytes for a in self.k) + sum(a.nbytes for a in self.v)

    def resized(self, max_len: int) -> KVCache:
        """A copy with room for `max_len` positions. ValueError when it holds more than that."""
        other = KVCache(self.n_layers, self.n_kv_heads, self.d_head, max_len, self.batch, self.dtype)
        for layer in range(self.n_layers):
            n = self._filled[layer]
            if n:
                other.update(layer, self.k[layer][:, :, :n], self.v[layer][:, :, :n])
        return other
