"""The GGUF reader: what it reads, compared with the `gguf` package, and what it refuses."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFEndian, GGUFReader, GGUFWriter, quants

from tinyllm import zoo
from tinyllm.xfmr.gguf import GGUFFile, read_gguf

Q4_1, Q8_0 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0


def write_small(path: Path, architecture: str = "llama", alignment: int | None = None) -> Path:
    """A file with one tensor of every format and metadata of every kind, made by the `gguf` package."""
    rng = np.random.default_rng(7)
    writer = GGUFWriter(path, architecture)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    writer.add_block_count(30)
    writer.add_rope_freq_base(1e5)
    writer.add_add_bos_token(False)
    writer.add_token_list(["a", "Ġb", "é", "", "日本"])
    writer.add_token_types([3, 1, 1, 1, 1])
    writer.add_int64("test.int64", -(2**40))
    writer.add_uint8("test.uint8", 255)
    writer.add_float64("test.float64", 0.1)
    writer.add_array("test.truths", [True, False, True])
    for name, rows, width, quant in [("q8.weight", 3, 64, Q8_0), ("q4.weight", 5, 96, Q4_1)]:
        weights = rng.standard_normal((rows, width), dtype=np.float32)
        writer.add_tensor(name, quants.quantize(weights, quant), raw_dtype=quant)
    writer.add_tensor("half.weight", rng.standard_normal((2, 3, 4)).astype(np.float16))
    norm = rng.standard_normal(16).astype(np.float32)  # 64 bytes, so that no padding follows it
    writer.add_tensor("norm.weight", norm)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("gguf") / "small.gguf")


def assert_equals_the_package(path: Path) -> None:
    ours, theirs = read_gguf(path), GGUFReader(path)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert ours.metadata == fields
    assert [type(v) for v in ours.metadata.values()] == [type(v) for v in fields.values()]
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.name == tensor.name
        assert mine.format == tensor.tensor_type.name
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert mine.data.shape[0] == np.prod(mine.shape[:-1], dtype=int)
        assert mine.data.tobytes() == tensor.data.tobytes()


def refusal(path: Path) -> str:
    """The sentence with which the reader refuses `path`; it must name the file."""
    with pytest.raises(ValueError, match=r"cannot be used as a GGUF model") as caught:
        read_gguf(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def changed(path: Path, folder: Path, old: bytes, new: bytes) -> Path:
    """A copy of the file with the one place that reads `old` reading `new`."""
    content = path.read_bytes()
    assert content.count(old) == 1
    copy = folder / "changed.gguf"
    copy.write_bytes(content.replace(old, new))
    return copy


def entry(name: str, sizes: list[int], kind: int) -> bytes:
    """A tensor's description as it stands in the file, up to its offset."""
    numbers = struct.pack(f"<I{len(sizes)}QI", len(sizes), *sizes, kind)
    return struct.pack("<Q", len(name)) + name.encode() + numbers


@pytest.mark.parametrize("alignment", [None, 8, 64, 4096])
def test_reads_what_the_gguf_package_reads(tmp_path: Path, alignment: int | None) -> None:
    """Our reader exists for its speed alone, so it must agree with the package on every value and byte.

    KIND: differential, smoke.
    """
    assert_equals_the_package(write_small(tmp_path / "aligned.gguf", alignment=alignment))


@pytest.mark.model
def test_reads_the_real_model_as_the_gguf_package_does() -> None:
    """One wrong token string or offset in 272 tensors would give a model that is subtly another.

    KIND: differential.
    """
    assert_equals_the_package(zoo.smollm2_path())


def test_tensor_bytes_cannot_be_written(small: Path) -> None:
    """A model shares the bytes of the file with every other reader; nobody may change them by accident.

    KIND: boundary.
    """
    data = read_gguf(small).tensors["q4.weight"].data
    with pytest.raises(ValueError, match="read-only"):
        data[0, 0] = 0


def test_metadata_is_plain_python(small: Path) -> None:
    """Callers compare and print these values, so none may be a NumPy scalar or an array.

    KIND: unit.
    """
    metadata = read_gguf(small).metadata
    assert metadata["tokenizer.ggml.tokens"] == ["a", "Ġb", "é", "", "日本"]
    assert metadata["tokenizer.ggml.add_bos_token"] is False
    assert metadata["test.truths"] == [True, False, True]
    assert metadata["llama.rope.freq_base"] == 1e5
    assert metadata["test.int64"] == -(2**40)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The commonest mistake is a wrong path, and the reader must see which path was tried.

    KIND: boundary.
    """
    path = tmp_path / "nowhere.gguf"
    with pytest.raises(FileNotFoundError, match=r"nowhere\.gguf"):
        read_gguf(path)
    with pytest.raises(ValueError, match="is not a file"):
        read_gguf(tmp_path)


def test_every_cut_is_refused(small: Path, tmp_path: Path) -> None:
    """An interrupted copy can end at any byte: in a length, a string, a description, a tensor.

    KIND: boundary.
    """
    content = small.read_bytes()
    start_of_data = content.index(read_gguf(small).tensors["q8.weight"].data.tobytes())
    cut = tmp_path / "cut.gguf"
    for size in [*range(start_of_data + 1), *range(start_of_data + 2, len(content), 11), len(content) - 1]:
        cut.write_bytes(content[:size])
        refusal(cut)


def test_extra_bytes_are_refused(small: Path, tmp_path: Path) -> None:
    """Bytes that no tensor accounts for mean that the tensors are not where the file says.

    KIND: boundary.
    """
    longer = tmp_path / "longer.gguf"
    longer.write_bytes(small.read_bytes() + b"\0")
    assert "1 bytes more" in refusal(longer)


def assert_same_weights(file: GGUFFile, original: GGUFFile) -> None:
    """Every tensor has its format and starts at its byte; its size may differ by what the padding hides."""
    for tensor, before in zip(file.tensors.values(), original.tensors.values(), strict=True):
        assert tensor.format == before.format
        mine, theirs = tensor.data.tobytes(), before.data.tobytes()
        assert abs(len(mine) - len(theirs)) < 32
        assert mine.startswith(theirs) or theirs.startswith(mine)


def test_no_flipped_bit_moves_the_weights(small: Path, tmp_path: Path) -> None:
    """One flipped bit before the tensor data may change a name or a value; it must not move any weights.

    KIND: boundary.
    """
    content = small.read_bytes()
    original = read_gguf(small)
    start_of_data = content.index(original.tensors["q8.weight"].data.tobytes())
    bits = np.random.default_rng(8).integers(8, size=start_of_data)
    flipped_file = tmp_path / "flipped.gguf"
    refused = 0
    for place, bit in enumerate(bits):
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(bit)
        flipped_file.write_bytes(flipped)
        try:
            file = read_gguf(flipped_file)
        except ValueError as fault:
            refused += 1
            assert str(flipped_file) in str(fault)
            continue
        assert_same_weights(file, original)
        assert len({*file.tensors, *file.metadata} ^ {*original.tensors, *original.metadata}) <= 2
    assert refused > start_of_data / 4  # the rest changed a letter of a name, or a value, and nothing else


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"GGUF\3\0\0\0", b"GGML\3\0\0\0", "starts with b'GGML'"),
        (b"GGUF\3\0\0\0", b"GGUF\1\0\0\0", "version 1;"),
        (b"GGUF\3\0\0\0", b"GGUF\4\0\0\0", "version 4;"),
        (b"GGUF\3\0\0\0", b"GGUF\0\0\0\3", "look big-endian"),
        ("日本".encode(), b"\xff" * 6, "'tokenizer.ggml.tokens' at byte"),
        (b"test.uint8\0\0\0\0", b"test.uint8\x0d\0\0\0", "type number 13"),
        (b"test.truths\x09\0\0\0\7", b"test.truths\x09\0\0\0\x09", "array of type number 9"),
        (b"\1\0\1" + struct.pack("<Q", 9), b"\1\0\2" + struct.pack("<Q", 9), "neither 0 nor 1"),
        (b"test.int64", b"test.uint8", "metadata key 'test.uint8' twice"),
        (b"q4.weight", b"q8.weight", "two tensors called 'q8.weight'"),
        (entry("q4.weight", [96, 5], 3), entry("q4.weight", [96, 5], 2), "format Q4_0; F32, F16, Q4_1, Q8_0"),
        (entry("q4.weight", [96, 5], 3), entry("q4.weight", [96, 5], 30), "format BF16"),
        (entry("q4.weight", [96, 5], 3), entry("q4.weight", [96, 5], 4), "format number 4"),
        (entry("q4.weight", [96, 5], 3), entry("q4.weight", [96, 0], 3), "at least 1"),
        (entry("q4.weight", [96, 5], 3), entry("q4.weight", [80, 6], 3), "multiples of 32"),
        (entry("q4.weight", [96, 5], 3), entry("q4.weight", [96, 6], 3), "'half.weight' should start"),
        (entry("norm.weight", [16], 0), entry("norm.weight", [32], 0), "'norm.weight' ends at byte"),
        (entry("norm.weight", [16], 0), entry("norm.weight", [8], 0), "32 bytes more"),
        (b"norm.weight\1\0\0\0", b"norm.weight\5\0\0\0", "5 dimensions"),
        (struct.pack("<2Q", 4, 10), struct.pack("<2Q", 2**63, 10), "cut short"),
        (struct.pack("<2Q", 4, 10), struct.pack("<2Q", 4, 2**64 - 1), "cannot be used"),
        (b"tokens\x09\0\0\0\x08\0\0\0\5", b"tokens\x09\0\0\0\x08\0\0\0\xff", "cannot be used"),
        (struct.pack("<2Q", 5, 1) + b"a", struct.pack("<2Q", 5, 2**64 - 1) + b"a", "cut short"),
    ],
)
def test_each_fault_has_its_own_sentence(small: Path, tmp_path: Path, old: bytes, new: bytes, reason: str) -> None:
    """A bare "damaged" helps nobody: the sentence says which value is wrong, and what could be read.

    KIND: boundary.
    """
    assert reason in refusal(changed(small, tmp_path, old, new))


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    """A GPT-2 file has tensors of the same kinds; computing Llama with them would give nonsense quietly.

    KIND: boundary.
    """
    assert "'gpt2'" in refusal(write_small(tmp_path / "gpt2.gguf", architecture="gpt2"))


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    """GGUF 3 allows both byte orders; weights read in the wrong one are noise.

    KIND: boundary.
    """
    path = tmp_path / "big.gguf"
    writer = GGUFWriter(path, "llama", endianess=GGUFEndian.BIG)
    writer.add_tensor("norm.weight", np.ones(16, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "big-endian" in refusal(path)


@pytest.mark.parametrize("alignment", [0, 4, 48])
def test_an_impossible_alignment_is_refused(tmp_path: Path, alignment: int) -> None:
    """The alignment says where every tensor starts; only powers of two of at least 8 keep rows readable.

    KIND: boundary.
    """
    path = write_small(tmp_path / "aligned.gguf", alignment=4096)
    key = b"general.alignment\4\0\0\0"
    copy = changed(path, tmp_path, key + struct.pack("<I", 4096), key + struct.pack("<I", alignment))
    assert f"general.alignment is {alignment}" in refusal(copy)


def test_an_empty_file_and_another_kind_of_file_are_refused(tmp_path: Path) -> None:
    """A failed download often leaves an empty file, or an error page under the model's name.

    KIND: boundary.
    """
    path = tmp_path / "model.gguf"
    path.write_bytes(b"")
    assert "empty" in refusal(path)
    path.write_text("<!DOCTYPE html><title>Not found</title>", encoding="utf-8")
    assert "starts with b'<!DO'" in refusal(path)
