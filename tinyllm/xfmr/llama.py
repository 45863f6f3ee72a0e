"""The Llama Transformer (Touvron et al. 2023), one forward pass over any number of rows.

Root-mean-square norms, rotary positions, grouped key and value heads, SwiGLU, and the token embedding used again as the
head. It guarantees that the logits of a position are the same bits however the tokens before it were cut into passes,
whatever else is in the batch, on any number of threads, with a cache or without: see `kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinyllm.xfmr import kernels, lanes

if TYPE_CHECKING:
    from tinyllm.xfmr.gguf import GGUFFile


class Cache(Protocol):
    """What a pass needs of a key and value cache."""

    def seq_len(self) -> int:
        """Positions held."""

    def update(
        self, layer: int, k_new: NDArray[np.float32], v_new: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Append to a layer; return all it holds, [B, n_kv_heads, n, d_head], the last axis contiguous."""


class Weight(NamedTuple):
    """One tensor's bytes: its format, its shape [outputs, inputs], and the rows as stored."""

    format: str  # "F32", "F16", "Q4_1" or "Q8_0"
    shape: tuple[int, ...]
    data: NDArray[np.uint8]  # [outputs, bytes per row]


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes of a Llama."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_model: int
    d_ff: int
    vocab_size: int
    max_len: int
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor's name, as GGUF has it, and shape, outputs first."""
        q, kv = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
        found: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocab_size, self.d_model)}
        for i in range(self.n_layers):
            layer: dict[str, tuple[int, ...]] = {
                "attn_norm": (self.d_model,),
                "attn_q": (q, self.d_model),
                "attn_k": (kv, self.d_model),
                "attn_v": (kv, self.d_model),
                "attn_output": (self.d_model, q),
                "ffn_norm": (self.d_model,),
                "ffn_gate": (self.d_ff, self.d_model),
                "ffn_up": (self.d_ff, self.d_model),
                "ffn_down": (self.d_model, self.d_ff),
            }
            found |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
        return found | {"output_norm.weight": (self.d_model,)}

    def check(self) -> None:
        """ValueError unless the sizes make a model these kernels can run."""
        for name in ("n_layers", "n_heads", "n_kv_heads", "d_head", "d_model", "d_ff", "vocab_size", "max_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"{self.n_heads} heads cannot share {self.n_kv_heads} key and value heads evenly.")
        for name in ("d_head", "d_model", "d_ff"):
            if getattr(self, name) % lanes.LANES:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be a multiple of {lanes.LANES}.")


class Llama:
    """A Llama whose logits for a position do not depend on how the pass was cut.

    `weights` maps the names of `config.shapes()` to float32 or float16 arrays, or to a `Weight` in any accepted format;
    norms are float32. Rows of attn_q and attn_k are in llama.cpp's order: the two coordinates that a rotary angle turns
    are neighbours. ValueError when a tensor is missing, of another shape or of a format that is not accepted.
    """

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Any]) -> None:
        config.check()
        self.config = config
        matrices: list[tuple[str, tuple[int, int], NDArray[np.uint8]]] = []
        norms: list[NDArray[np.float32]] = []
        for name, shape in config.shapes().items():
            weight = _as_weight(name, shape, weights)
            if len(shape) == 1:
                norms.append(_norm(name, weight))
            else:
                matrices.append((weight.format, (shape[0], shape[1]), weight.data))
        self._packed = kernels.pack(matrices)
        self._norms = np.stack(norms)  # [2 * n_layers + 1, d_model]: two a layer, then the last
        angles = np.arange(config.max_len)[:, None] * config.rope_base ** (
            -np.arange(0, config.d_head, 2) / config.d_head
        )  # [max_len, d_head / 2]
        self._cos, self._sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> Llama:
        """The model of a GGUF file; ValueError naming the file when it does not hold a whole Llama."""
        try:
            return cls(_config(file), {name: Weight(t.format, t.shape, t.data) for name, t in file.tensors.items()})
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None

    n_layers = property(lambda self: self.config.n_layers)
    n_heads = property(lambda self: self.config.n_heads)
    n_kv_heads = property(lambda self: self.config.n_kv_heads)
    d_head = property(lambda self: self.config.d_head)
    d_model = property(lambda self: self.config.d_model)
    vocab_size = property(lambda self: self.config.vocab_size)
    max_len = property(lambda self: self.config.max_len)

    def nbytes(self) -> int:
        """Bytes of weights held; a model of `first_layers` holds those of the whole one."""
        return int(self._packed.data.nbytes + self._norms.nbytes)

    def first_layers(self, n: int) -> Llama:
        """The model made of this one's first n layers, final norm and head; it shares the weights."""
        if not 1 <= n <= self.n_layers:
            raise ValueError(f"n is {n}; this model has 1 to {self.n_layers} layers to take.")
        part = object.__new__(Llama)
        part.__dict__ |= self.__dict__
        part.config = replace(self.config, n_layers=n)
        part._norms = np.concatenate([self._norms[: 2 * n], self._norms[-1:]])
        return part

    def forward(
        self, ids: ArrayLike, positions: ArrayLike | None = None, cache: Cache | None = None
    ) -> NDArray[np.float32]:
        """Logits float32 [B, T, V] after each of the ids [B, T], which go behind what the cache holds.

        `positions` [T] are their places for the rotary angles; None continues the cache. ValueError for an id outside
        the vocabulary, a position outside [0, max_len), or more tokens than max_len.
        """
        return self.head(self.hidden(ids, positions, cache))

    def hidden(
        self, ids: ArrayLike, positions: ArrayLike | None = None, cache: Cache | None = None
    ) -> NDArray[np.float32]:
        """The rows that `head` turns into logits: float32 [B, T, d_model], normed. Arguments as for `forward`."""
        ids, past = np.asarray(ids), 0 if cache is None else cache.seq_len()
        batch, length = self._check_ids(ids, past)
        places = self._check_positions(positions, past, length)

        c, parts, row = self.config, kernels.threads(), np.arange(batch * length)
        begin, end = np.zeros(len(row), np.int64), past + row % length + 1  # a row sees the slots up to its own
        slots, places, owner = np.arange(past + length), np.tile(places, batch), row // length
        x = kernels.weight_rows(self._packed, 0, ids.reshape(-1))  # [B * T, d_model]
        keys: NDArray[np.float32] = np.empty((0, 1, 1, 1), np.float32)  # none before the first layer
        values, out = keys, x
        with kernels.one_caller:
            for i in range(c.n_layers + 1):
                if i > 0:
                    heads = out.reshape(batch, length, -1, c.d_head).swapaxes(1, 2)  # [B, heads + 2 n_kv, T, d_head]
                    keys, values = heads[:, c.n_heads : -c.n_kv_heads], heads[:, -c.n_kv_heads :]
                    if cache is not None:
                        keys, values = cache.update(i - 1, keys, values)  # [B, n_kv_heads, past + T, d_head]
                out = kernels.to_next_cache(
                    *self._packed, self._norms, np.float32(c.norm_eps), self._cos, self._sin, i, x, places, out,
                    c.n_heads, keys, values, owner, slots, begin, end, parts,
                )  # [B * T, (n_heads + 2 n_kv_heads) * d_head], at last [B * T, d_model]  # fmt: skip
        return out.reshape(batch, length, c.d_model)

    def head(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits float32 [..., V] of rows that `hidden` returned, [..., d_model]."""
        rows = np.ascontiguousarray(hidden, dtype=np.float32).reshape(-1, self.d_model)
        with kernels.one_caller:
            logits: NDArray[np.float32] = kernels.product(
                self._packed.data, self._packed.table[:1], rows, kernels.threads()
            )
        return logits[:, : self.vocab_size].reshape(*hidden.shape[:-1], self.vocab_size)

    def _check_ids(self, ids: NDArray[Any], past: int) -> tuple[int, int]:
        if ids.ndim != 2 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise ValueError(f"ids has shape {ids.shape} and type {ids.dtype}; it must be integers [B, T], not empty.")
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            raise ValueError(f"ids go from {ids.min()} to {ids.max()}; the vocabulary is [0, {self.vocab_size}).")
        if past + ids.shape[1] > self.max_len:
            raise ValueError(f"{past} cached and {ids.shape[1]} new tokens are more than max_len, {self.max_len}.")
        return ids.shape[0], ids.shape[1]

    def _check_positions(self, positions: ArrayLike | None, past: int, length: int) -> NDArray[np.int64]:
        if positions is None:
            return np.arange(past, past + length)
        places = np.asarray(positions)
        if places.shape != (length,) or places.dtype.kind not in "iu":
            raise ValueError(f"positions has shape {places.shape}; it must be {length} integers, one a token.")
        if places.min() < 0 or places.max() >= self.max_len:
            raise ValueError(
                f"positions go from {places.min()} to {places.max()}; they must be in [0, {self.max_len})."
            )
        return places.astype(np.int64)


def _as_weight(name: str, shape: tuple[int, ...], weights: Mapping[str, Any]) -> Weight:
    if name not in weights:
        raise ValueError(f"The tensor {name} is missing.")
    weight = weights[name]
    if not isinstance(weight, Weight):
        array = np.ascontiguousarray(weight)
        formats = {"float32": "F32", "float16": "F16"}
        if array.dtype.name not in formats:
            raise ValueError(f"The tensor {name} is {array.dtype.name}; arrays are float32 or float16.")
        weight = Weight(formats[array.dtype.name], array.shape, np.atleast_2d(array).view(np.uint8))
    if tuple(weight.shape) != shape:
        raise ValueError(f"The tensor {name} has shape {list(weight.shape)}; {list(shape)} is needed.")
    if weight.format not in kernels.FORMATS:
        raise ValueError(f"The tensor {name} is in format {weight.format}; accepted: {', '.join(kernels.FORMATS)}.")
    return weight


def _norm(name: str, weight: Weight) -> NDArray[np.float32]:
    if weight.format != "F32":
        raise ValueError(f"The norm {name} is in format {weight.format}; norms are F32.")
    return np.array(weight.data).reshape(-1).view(np.float32)


def _config(file: GGUFFile) -> LlamaConfig:
    """The sizes in a GGUF file's metadata; ValueError for anything that would make it another kind of model."""
    metadata = file.metadata
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ValueError(f"its architecture is {architecture!r}; only 'llama' is built here.")

    def number(key: str, default: float | None = None) -> Any:
        value = metadata.get(f"llama.{key}", default)
        if not isinstance(value, int | float) or value <= 0:
            raise ValueError(f"its metadata has {value!r} as llama.{key}; a number above 0 is needed.")
        return value

    heads, d_model = number("attention.head_count"), number("embedding_length")
    if d_model % heads:
        raise ValueError(f"its {heads} heads do not divide the width {d_model} evenly.")
    if "token_embd.weight" not in file.tensors:
        raise ValueError("the tensor token_embd.weight is missing.")
    config = LlamaConfig(
        n_layers=number("block_count"),
        n_heads=heads,
        n_kv_heads=number("attention.head_count_kv", heads),
        d_head=d_model // heads,
        d_model=d_model,
        d_ff=number("feed_forward_length"),
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        max_len=number("context_length"),
        rope_base=float(number("rope.freq_base", 10_000.0)),
        norm_eps=float(number("attention.layer_norm_rms_epsilon")),
    )
    for key in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        if number(key, config.d_head) != config.d_head:
            raise ValueError(f"its llama.{key} is {number(key)}; only {config.d_head}, a whole head, is built here.")
    if metadata.get("llama.rope.scaling.type", "none") != "none":
        raise ValueError("its rotary angles are scaled (llama.rope.scaling.type); only plain ones are built here.")
    unknown = sorted(file.tensors.keys() - config.shapes().keys())
    if unknown:  # a head of its own, a bias, an expert: leaving it out would be another model
        raise ValueError(f"it has the tensor {unknown[0]}, which this Llama has no place for.")
    return config
