"""The KV cache as one block of memory: keys and values of all layers in a single array."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


class KVCache:
    """Keys and values of every layer, `[n_layers, 2, batch, n_kv_heads, max_len, d_head]`, zeros until written."""

    def __init__(
        self,
        n_layers: int,
        n_kv_heads: int,
        d_head: int,
        max_len: int,
        batch: int = 1,
        dtype: DTypeLike = np.float32,
    ) -> None:
        if min(n_layers, n_kv_heads, d_head, max_len, batch) <= 0:
            raise ValueError("a cache has at least one of everything.")
        if not np.issubdtype(np.dtype(dtype), np.floating):
            raise ValueError(f"a cache cannot hold {np.dtype(dtype)}.")
        self.n_layers = n_layers
        self.n_kv_heads = n_kv_heads
        self.d_head = d_head
        self.max_len = max_len
        self.batch = batch
        self.dtype = np.dtype(dtype)
        self.block = np.zeros((n_layers, 2, batch, n_kv_heads, max_len, d_head), self.dtype)
        self.k = [layer[0] for layer in self.block]
        self.v = [layer[1] for layer in self.block]
        self.fill = np.zeros(n_layers, dtype=np.int64)

    def update(
        self, layer: int, k_new: ArrayLike, v_new: ArrayLike
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Append keys and values to `layer`; return all it holds as float32. ValueError leaves it unchanged."""
        if layer not in range(self.n_layers):
            raise ValueError(f"this cache has no layer {layer}.")
        shapes = {np.shape(k_new), np.shape(v_new)}
        shape = shapes.pop()
        if shapes or len(shape) != 4 or shape[2] == 0:
            raise ValueError("keys and values must have one and the same shape, with at least one position.")
        if (shape[0], shape[1], shape[3]) != (self.batch, self.n_kv_heads, self.d_head):
            raise ValueError(f"{shape} does not fit this cache.")
        first = int(self.fill[layer])
        last = first + shape[2]
        if last > self.max_len:
            raise ValueError(f"{last} positions are more than {self.max_len}.")
        self.block[layer, 0, :, :, first:last] = k_new
        self.block[layer, 1, :, :, first:last] = v_new
        self.fill[layer] = last
        held = self.block[layer, :, :, :, :last].astype(np.float32)  # [2, batch, n_kv_heads, n, d_head], a copy
        return held[0], held[1]

    def seq_len(self, layer: int | None = None) -> int:
        """Positions held by every layer, or by one."""
        return int(self.fill.min() if layer is None else self.fill[layer])

    def positions(self, t: int) -> NDArray[np.int64]:
        """The positions of the next `t` tokens, int64 `[t]`."""
        return np.arange(t, dtype=np.int64) + self.seq_len()

    def mask(self, t: int) -> NDArray[np.bool_]:
        """Which columns the next `t` rows may see, bool `[t, seq_len() + t]`."""
        columns = np.arange(self.seq_len() + t)
        return columns[None, :] <= self.positions(t)[:, None]

    def truncate(self, n: int) -> None:
        """Forget every position from `n` on. ValueError unless 0 <= n <= seq_len()."""
        if n < 0 or n > self.seq_len():
            raise ValueError(f"cannot keep {n} of {self.seq_len()} positions.")
        self.fill[:] = n

    def nbytes(self) -> int:
        """Bytes set aside for keys and values together, used or not."""
        return int(self.block.nbytes)

    def resized(self, max_len: int) -> KVCache:
        """A copy with room for `max_len` positions. ValueError when it holds more than that."""
        if max_len < int(self.fill.max()):
            raise ValueError(f"{int(self.fill.max())} positions do not fit into {max_len}.")
        other = KVCache(self.n_layers, self.n_kv_heads, self.d_head, max_len, self.batch, self.dtype)
        common = min(max_len, self.max_len)
        other.block[..., :common, :] = self.block[..., :common, :]
        other.fill[:] = self.fill
        return other
