"""What the package's n-gram model promises beyond the course's contract.

The course asks for the right numbers; a draft that is asked once a token over 49,152 ids also needs them fast, with
the same bits whichever way they are asked for, and a model file comes from disk, where it may be cut short, belong to
something else, or have been edited. These are tests of this implementation, not of a learner's.
"""

import math
import time
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tinyllm.lm.ngram import NGramLM
from tinyllm.num.rng import PCG32

V = 49_152


@pytest.fixture(scope="module")
def big():
    """Order 4 over 100,000 ids of a vocabulary of the real size; ids are skewed, and every sequence repeats itself."""
    u = np.asarray(PCG32(1).substream("sample").uniforms(50_000))
    ids = (np.exp(u * math.log(V)) - 1).astype(int)  # few ids are frequent, as in text
    halves = ids.reshape(50, 1000)
    return NGramLM(4, vocab_size=V).fit(np.concatenate([halves, halves], axis=1).tolist()), ids


def test_a_probability_has_the_bits_of_its_logarithm(big):
    """prob and logprobs walk different data and must do the same operations, or a draft's rank depends on the road.

    KIND: property, differential.
    """
    lm, ids = big
    for start in range(0, 20_000, 1999):
        context = ids[start : start + 3].tolist()
        row = lm.logprobs(context)
        tokens = [*ids[start : start + 200].tolist(), *range(0, V, 997)]
        assert [math.log(lm.prob(context, w)) for w in tokens] == row[tokens].tolist()
        assert math.fsum(np.exp(row)) == pytest.approx(1, abs=1e-12)


def test_a_row_over_a_real_vocabulary_takes_well_under_a_millisecond(big):
    """A draft asks once for every token it proposes; at 5 ms a pass of the real model, 1 ms each would be felt.

    The best of many runs, so that a busy machine does not decide.

    KIND: statistical.
    """
    lm, ids = big
    contexts = [ids[i : i + 3].tolist() for i in range(0, 3000, 10)]
    best = math.inf
    for _ in range(5):
        begin = time.perf_counter()
        for context in contexts:
            lm.logprobs(context)
        best = min(best, (time.perf_counter() - begin) / len(contexts))
    assert best < 1e-3


def test_memory_grows_with_the_text_and_not_with_the_vocabulary_squared(big):
    """100,000 ids give at most 100,000 grams an order: some megabytes, however large V is.

    KIND: boundary.
    """
    lm, ids = big
    tracemalloc.start()
    try:
        again = NGramLM(4, vocab_size=V).fit([ids.tolist()])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert again.vocab_size == lm.vocab_size
    assert held < 12_000_000


def test_a_failed_fit_leaves_the_model_as_it_was():
    """A notebook cell that raises must not leave half a model behind.

    KIND: boundary.
    """
    lm = NGramLM(2).fit([[0, 1, 2]])
    before = lm.logprobs([1])
    for bad in ([[0, -1]], [0, 1], [[0.5, 1.5]], [["a"]], []):
        with pytest.raises(ValueError):
            lm.fit(bad)
        assert np.array_equal(lm.logprobs([1]), before)


@pytest.mark.parametrize("ids", [np.array([0, 1, 2]), (0, 1, 2), [np.int64(0), 1, 2]], ids=["array", "tuple", "mixed"])
def test_any_sequence_of_integers_serves(ids):
    """Ids come out of tokenizers as lists, out of corpora as arrays.

    KIND: unit.
    """
    lm = NGramLM(2).fit([[0, 1, 2]])
    same = NGramLM(2).fit([ids])
    assert np.array_equal(same.logprobs(ids), lm.logprobs([0, 1, 2]))
    assert same.nll(ids) == lm.nll([0, 1, 2])


@pytest.mark.parametrize("bad", [0.0, "0", None, True])
def test_what_is_no_integer_is_no_id(bad):
    """1.0 compares equal to 1 and would find its grams, until a dictionary or another engine sees it.

    KIND: boundary.
    """
    lm = NGramLM(2).fit([[0, 1]])
    with pytest.raises(ValueError):
        lm.prob([], bad)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "lm.safetensors"
    NGramLM(3, discount=0.5).fit([[0, 1, 2, 0, 1], [2, 2, 0]]).save(path)
    return path


METADATA = {"tl_arch": "ngram", "n": "3", "discount": "0.5", "vocab_size": "3"}


def rewrite(path, metadata=METADATA, **changes):
    tensors = load_file(path)
    for name, change in changes.items():
        name = name.replace("_", ".")
        changed = change(tensors.pop(name))
        if changed is not None:
            tensors[name] = np.ascontiguousarray(changed)
    save_file(tensors, path, metadata)


@pytest.mark.parametrize("size", [0, 4, 20, 300, -1])
def test_a_file_that_was_cut_short_is_refused(saved, size):
    """A copy that was interrupted must be an error with the file's name in it, never a smaller model.

    KIND: boundary.
    """
    saved.write_bytes(saved.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"lm\.safetensors"):
        NGramLM.load(saved)


def test_a_file_that_is_not_there_is_named(tmp_path):
    """The usual mistake is the folder, so the error must show where was looked.

    KIND: boundary.
    """
    with pytest.raises(FileNotFoundError, match="absent"):
        NGramLM.load(tmp_path / "absent.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"tl_arch": "llama"},
        {"tl_arch": None},
        {"n": "4"},
        {"n": "three"},
        {"n": None},
        {"discount": "absolute"},
        {"discount": "2.0"},
        {"vocab_size": "2"},
        {"vocab_size": None},
    ],
    ids=str,
)
def test_metadata_that_do_not_fit_are_refused(saved, change):
    """Another model's file, an order that is not stored, a vocabulary smaller than the ids.

    KIND: boundary.
    """
    metadata = {key: value for key, value in {**METADATA, **change}.items() if value is not None}
    rewrite(saved, metadata)
    with pytest.raises(ValueError, match=r"lm\.safetensors"):
        NGramLM.load(saved)


def edited(array, index, value):
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.parametrize(
    "change",
    [
        {"order2_counts": lambda a: None},
        {"order2_counts": lambda a: a.astype(np.int64)},
        {"order2_counts": lambda a: a[:-1]},
        {"order2_grams": lambda a: a.T},
        {"order2_grams": lambda a: a[::-1]},
        {"order1_counts": lambda a: edited(a, 0, 0)},
        {"order1_counts": lambda a: edited(a, 0, a[0] + 1)},
        {"order1_grams": lambda a: edited(a, 0, -1)},
        {"order3_grams": lambda a: edited(a, (0, 0), -2)},
        {"order3_grams": lambda a: edited(a, (-1, -1), 1)},
        {"order3_grams": lambda a: a[:-1], "order3_counts": lambda a: a[:-1]},
    ],
    ids=[
        "no counts",
        "wide counts",
        "a count short",
        "transposed",
        "unsorted",
        "a count of 0",
        "a count more",
        "the start as a token",
        "a symbol below the start",
        "another gram",
        "a gram short",
    ],
)
def test_counts_that_cannot_be_of_one_text_are_refused(saved, change):
    """Every gram ends a longer one, so the orders check each other: an edit of one of them shows.

    KIND: boundary.
    """
    rewrite(saved, **change)
    with pytest.raises(ValueError, match=r"lm\.safetensors"):
        NGramLM.load(saved)


def test_an_untouched_rewrite_still_loads(saved):
    """The refusals above mean something only if the same road without an edit is accepted.

    KIND: unit.
    """
    before = NGramLM.load(saved).logprobs([0])
    rewrite(saved)
    assert np.array_equal(NGramLM.load(saved).logprobs([0]), before)
