"""Read a GGUF file: its metadata as plain Python values, its tensors as views of the bytes on disk.

The layout is that of the GGUF specification in the ggml repository (docs/gguf.md), versions 2 and 3. The
`gguf` package reads it too, but takes seconds over a vocabulary of 49,152 strings; this reader takes a tenth
of a second, and the tests hold it to that package. Guarantee: a file that is damaged, cut short, of another
version or architecture, or in a tensor format the kernels do not compute with is refused by a sentence that
names the file and the fault.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ARCHITECTURE = "llama"
MAGIC = b"GGUF"
VERSIONS = (2, 3)  # the two differ only in that 3 also allows big-endian files
DEFAULT_ALIGNMENT = 32

# tensor type number -> name, weights in a block, bytes in a block
TENSOR_FORMATS = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}

# metadata type number -> little-endian struct code
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
BOOL, STRING, ARRAY = 7, 8, 9
UINT32, UINT64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, eq=False)
class GGUFTensor:
    """One tensor on disk: `shape` in NumPy order ([out, in] for a matrix), `data` its bytes, read-only."""

    name: str
    format: str  # "F32", "F16", "Q4_1" or "Q8_0"
    shape: tuple[int, ...]
    data: NDArray[np.uint8]  # [rows, bytes_per_row]; a vector is one row


@dataclass(frozen=True, eq=False)
class GGUFFile:
    """What `read_gguf` found: where it came from, its metadata, its tensors by name."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]


def read_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Read the GGUF file at `path`; tensor data stays on disk until it is touched.

    Raises FileNotFoundError when there is no such file, and ValueError, naming the file and the fault, when
    it is not a whole little-endian GGUF file of version 2 or 3 with architecture "llama" and tensors in F32,
    F16, Q4_1 or Q8_0 that fill the rest of the file in order without gap or overlap.
    Source: the GGUF specification, ggml repository, docs/gguf.md.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}: give the path of a GGUF file.")
    if not path.is_file():
        raise ValueError(f"{path} is not a file: give the path of a GGUF file.")
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        raise ValueError(f"{path} cannot be used as a GGUF model: it is empty.")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        metadata, tensors = _read_file(_Reader(mapped))
    except _Fault as fault:
        raise ValueError(f"{path} cannot be used as a GGUF model: {fault}.") from None
    return GGUFFile(path, metadata, tensors)


class _Fault(Exception):
    """What is wrong with the file, as the end of a sentence; `read_gguf` adds the name of the file."""


class _Reader:
    """A place in the file, and reads that never go past its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.size = len(data)
        self.at = 0

    def skip(self, n: int, what: str) -> int:
        """Step over n bytes that must be there; return where they start."""
        start, self.at = self.at, self.at + n
        if self.at > self.size:
            raise _Fault(f"it is cut short: {what} ends at byte {self.at}, the file at {self.size}")
        return start

    def uint32(self, what: str) -> int:
        return int(UINT32.unpack_from(self.data, self.skip(4, what))[0])

    def uint64(self, what: str) -> int:
        return int(UINT64.unpack_from(self.data, self.skip(8, what))[0])

    def strings(self, n: int, what: str) -> list[str]:
        """n strings, each its length in bytes, then its UTF-8; a vocabulary is long, so the loop is bare."""
        found: list[str] = []
        data, at, length_of = self.data, self.at, UINT64.unpack_from
        for _ in range(n):
            start = at + 8
            at = start + length_of(data, at)[0] if start <= self.size else start
            if at > self.size:
                break
            try:
                found.append(data[start:at].decode())
            except UnicodeDecodeError:
                raise _Fault(f"{what} at byte {start} is not UTF-8 text") from None
        self.skip(at - self.at, what)
        return found

    def string(self, what: str) -> str:
        return self.strings(1, what)[0]

    def numbers(self, kind: int, n: int, what: str) -> list[Any]:
        item = struct.calcsize("<" + SCALARS[kind])
        start = self.skip(n * item, what)
        if kind == BOOL and any(byte > 1 for byte in self.data[start : self.at]):
            raise _Fault(f"{what} holds a truth value that is neither 0 nor 1")
        return list(struct.unpack_from(f"<{n}{SCALARS[kind]}", self.data, start))

    def value(self, what: str) -> Any:
        """One metadata value: its type number, then the value."""
        kind = self.uint32(what)
        if kind == STRING:
            return self.string(what)
        if kind in SCALARS:
            return self.numbers(kind, 1, what)[0]
        if kind != ARRAY:
            raise _Fault(f"{what} has the type number {kind}, which GGUF does not define")
        item_kind, n = self.uint32(what), self.uint64(what)
        if item_kind == STRING:
            return self.strings(n, what)
        if item_kind in SCALARS:
            return self.numbers(item_kind, n, what)
        raise _Fault(f"{what} is an array of type number {item_kind}; numbers and strings can be read")


def _read_file(reader: _Reader) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
    if reader.data[:4] != MAGIC:
        raise _Fault(f"it starts with {reader.data[:4]!r} instead of {MAGIC!r}")
    reader.skip(4, "the magic number")
    version = reader.uint32("the version")
    if version not in VERSIONS:
        order = "; its numbers look big-endian" if version and version & 0xFFFF == 0 else ""
        raise _Fault(f"it says version {version}{order}; little-endian versions {VERSIONS} can be read")
    n_tensors, n_values = reader.uint64("the tensor count"), reader.uint64("the metadata count")

    metadata: dict[str, Any] = {}
    for i in range(n_values):
        key = reader.string(f"metadata key {i} of {n_values}")
        if key in metadata:
            raise _Fault(f"it gives the metadata key {key!r} twice")
        metadata[key] = reader.value(f"the metadata value of {key!r}")
    architecture = metadata.get("general.architecture")
    if architecture != ARCHITECTURE:
        raise _Fault(f"its general.architecture is {architecture!r}; only {ARCHITECTURE!r} is built here")
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
        raise _Fault(f"its general.alignment is {alignment!r}; a power of two of at least 8 is needed")

    entries = [_read_entry(reader, f"the description of tensor {i} of {n_tensors}") for i in range(n_tensors)]
    everything = np.frombuffer(reader.data, dtype=np.uint8)  # a view of the mapped file, read-only like it
    start = _aligned(reader.at, alignment)
    tensors: dict[str, GGUFTensor] = {}
    end = start
    for name, format_name, shape, row_bytes, offset in entries:
        begin = _aligned(end, alignment)
        # Tensors lie one after another. Another offset would read one tensor's bytes as another's weights.
        if start + offset != begin:
            raise _Fault(f"tensor {name!r} should start at byte {begin}, not at {start + offset}")
        rows = prod(shape[:-1])
        end = begin + rows * row_bytes
        if end > reader.size:
            raise _Fault(f"it is cut short: tensor {name!r} ends at byte {end}, the file at {reader.size}")
        if name in tensors:
            raise _Fault(f"it has two tensors called {name!r}")
        data = everything[begin:end].reshape(rows, row_bytes)  # [rows, bytes_per_row]
        tensors[name] = GGUFTensor(name, format_name, shape, data)
    if reader.size not in (end, _aligned(end, alignment)):
        raise _Fault(f"it holds {reader.size - end} bytes more than its {n_tensors} tensors need")
    return metadata, tensors


def _read_entry(reader: _Reader, what: str) -> tuple[str, str, tuple[int, ...], int, int]:
    """One tensor's description: name, format, shape, bytes in a row, offset from the start of the data."""
    name = reader.string(what)
    what = f"the description of tensor {name!r}"
    n_dims = reader.uint32(what)
    if not 1 <= n_dims <= 4:
        raise _Fault(f"tensor {name!r} has {n_dims} dimensions; 1 to 4 can be read")
    sizes = [reader.uint64(what) for _ in range(n_dims)]  # fastest-changing first
    if 0 in sizes:
        raise _Fault(f"tensor {name!r} has the sizes {sizes}; every one must be at least 1")
    kind, offset = reader.uint32(what), reader.uint64(what)
    if kind not in TENSOR_FORMATS:
        accepted = ", ".join(format_name for format_name, _, _ in TENSOR_FORMATS.values())
        raise _Fault(f"tensor {name!r} is in the format {_format_name(kind)}; {accepted} can be read")
    format_name, block, block_bytes = TENSOR_FORMATS[kind]
    if sizes[0] % block:
        raise _Fault(f"tensor {name!r} has rows of {sizes[0]}; {format_name} needs multiples of {block}")
    return name, format_name, tuple(reversed(sizes)), sizes[0] // block * block_bytes, offset


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _format_name(kind: int) -> str:
    # Only words an error, so it is not worth 0.1 s at every start.
    from gguf.constants import GGMLQuantizationType

    try:
        return str(GGMLQuantizationType(kind).name)
    except ValueError:
        return f"number {kind}, which GGUF does not define"
