"""L8.2, the KV cache: what is written comes back in order, what is cut off is gone, and errors change nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinyllm.infer.kvcache import KVCache

pytestmark = pytest.mark.module("L8.2")


def block(t: int, seed: int = 0, batch: int = 1, heads: int = 2, d: int = 3) -> NDArray[np.float32]:
    """Recognisable new keys or values, float32 [batch, heads, t, d]."""
    return np.random.default_rng(seed).normal(size=(batch, heads, t, d)).astype(np.float32)


def small(**changes: Any) -> KVCache:
    return KVCache(**{"n_layers": 2, "n_kv_heads": 2, "d_head": 3, "max_len": 6, **changes})


def fill(cache: KVCache, k: NDArray[Any], v: NDArray[Any]) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    return [cache.update(layer, k, v) for layer in range(2)]


def test_update_returns_everything_the_layer_holds() -> None:
    """Attention at a new position needs the keys and values of all earlier ones, in order, K and V not confused.

    KIND: unit, smoke.
    """
    cache = small(batch=2)
    k1, v1, k2, v2 = (block(t, seed, batch=2) for seed, t in enumerate((3, 3, 2, 2)))
    k, v = cache.update(0, k1, v1)
    assert k.dtype == v.dtype == np.float32 and k.shape == v.shape == (2, 2, 3, 3)
    assert np.array_equal(k, k1) and np.array_equal(v, v1)
    k, v = cache.update(0, k2, v2)
    assert np.array_equal(k, np.concatenate([k1, k2], axis=2))
    assert np.array_equal(v, np.concatenate([v1, v2], axis=2))
    k, v = cache.update(1, k2, v1[:, :, :2])
    assert np.array_equal(k, k2) and np.array_equal(v, v1[:, :, :2]), "layers do not share"


def test_update_copies_in() -> None:
    """The caller may reuse its buffers: the cache keeps what it was given, not where it lay.

    KIND: unit.
    """
    cache = small()
    k, v = block(2, 1), block(2, 2)
    want = k.copy(), v.copy()
    cache.update(0, k, v)
    k[:] = v[:] = 9.0
    held = cache.update(0, block(1, 3), block(1, 4))
    assert np.array_equal(held[0][:, :, :2], want[0]) and np.array_equal(held[1][:, :, :2], want[1])


def test_a_float16_cache_gives_back_what_it_stored() -> None:
    """Float16 halves the memory; every reader gets the same rounded values, also those that just wrote them.

    KIND: unit.
    """
    cache = small(dtype=np.float16)
    k, v = block(3, 1), block(3, 2)
    got_k, got_v = cache.update(0, k, v)
    assert got_k.dtype == got_v.dtype == np.float32
    assert np.array_equal(got_k, k.astype(np.float16).astype(np.float32))
    assert np.array_equal(got_v, v.astype(np.float16).astype(np.float32))
    assert not np.array_equal(got_k, k)
    assert np.array_equal(cache.update(0, block(1, 3), block(1, 4))[0][:, :, :3], got_k)


def test_any_float_type_comes_in() -> None:
    """Float64 keys are rounded to the cache's type and come back as float32.

    KIND: unit.
    """
    for dtype in (np.float16, np.float32, np.float64):
        k = block(2, 1).astype(np.float64) / 3
        got, _ = small(dtype=dtype).update(0, k, k)
        assert got.dtype == np.float32
        assert np.array_equal(got, k.astype(dtype).astype(np.float32))


def test_seq_len_is_what_every_layer_holds() -> None:
    """During a pass the layers differ; the cache as a whole holds only what the last layer has too.

    KIND: unit, smoke.
    """
    cache = small()
    assert cache.seq_len() == cache.seq_len(0) == 0
    cache.update(0, block(3), block(3))
    assert (cache.seq_len(), cache.seq_len(0), cache.seq_len(1)) == (0, 3, 0)
    cache.update(1, block(2), block(2))
    assert (cache.seq_len(), cache.seq_len(0), cache.seq_len(1)) == (2, 3, 2)


def test_positions_go_on_from_what_is_held() -> None:
    """The next t tokens stand behind the ones in the cache.

    KIND: unit, smoke.
    """
    cache = small()
    assert cache.positions(3).tolist() == [0, 1, 2] and cache.positions(3).dtype == np.int64
    cache.update(0, block(2), block(2))
    assert cache.positions(2).tolist() == [0, 1], "one layer alone does not count"
    cache.update(1, block(2), block(2))
    assert cache.positions(2).tolist() == [2, 3]


def test_the_mask_is_causal_over_held_and_new_positions() -> None:
    """A new row sees everything held and the new ones up to itself, never a later one.

    KIND: unit, smoke.
    """
    cache = small()
    assert cache.mask(3).dtype == np.bool_
    assert np.array_equal(cache.mask(3), np.tril(np.ones((3, 3), dtype=bool)))
    fill(cache, block(2), block(2))
    assert cache.mask(2).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert cache.mask(1).tolist() == [[True, True, True]]


def test_truncate_forgets_the_last_positions() -> None:
    """Rejected drafts are dropped by keeping n positions; what comes next takes their place.

    KIND: unit, smoke.
    """
    cache = small()
    k, v = block(4, 1), block(4, 2)
    fill(cache, k, v)
    cache.truncate(2)
    assert cache.seq_len() == cache.seq_len(0) == cache.seq_len(1) == 2
    assert cache.positions(1).tolist() == [2]
    k2, v2 = block(1, 3), block(1, 4)
    for got_k, got_v in fill(cache, k2, v2):
        assert np.array_equal(got_k, np.concatenate([k[:, :, :2], k2], axis=2))
        assert np.array_equal(got_v, np.concatenate([v[:, :, :2], v2], axis=2))
    cache.truncate(3)
    assert cache.seq_len() == 3, "keeping everything changes nothing"
    cache.truncate(0)
    assert cache.seq_len() == 0
    assert np.array_equal(cache.update(0, k2, v2)[0], k2)


def test_truncate_evens_out_an_interrupted_pass() -> None:
    """A pass that failed half-way leaves the layers uneven; truncating to what all hold makes them one again.

    KIND: boundary.
    """
    cache = small()
    fill(cache, block(2, 1), block(2, 2))
    cache.update(0, block(3), block(3))
    with pytest.raises(ValueError):
        cache.truncate(3)
    cache.truncate(2)
    assert cache.seq_len(0) == cache.seq_len(1) == 2


def test_truncate_refuses_what_is_not_held() -> None:
    """A cache cannot be cut to more than it has, nor below nothing; it is then unchanged.

    KIND: boundary.
    """
    cache = small()
    fill(cache, block(2), block(2))
    for n in (3, -1, 100):
        with pytest.raises(ValueError):
            cache.truncate(n)
    assert cache.seq_len() == 2


BAD_UPDATES: dict[str, tuple[int, Any, Any]] = {
    "a layer that is not there": (2, block(1), block(1)),
    "a negative layer": (-1, block(1), block(1)),
    "no positions": (0, block(0), block(0)),
    "another number of heads": (0, block(1, heads=3), block(1, heads=3)),
    "one head, which would broadcast": (0, block(1, heads=1), block(1, heads=1)),
    "another d_head": (0, block(1, d=4), block(1, d=4)),
    "another batch": (0, block(1, batch=2), block(1, batch=2)),
    "keys and values of other lengths": (0, block(2), block(1)),
    "good keys, bad values": (0, block(1), block(1, d=1)),
    "three dimensions": (0, block(1)[0], block(1)[0]),
    "one position too many": (0, block(5), block(5)),
}


@pytest.mark.parametrize("name", BAD_UPDATES)
def test_a_bad_update_changes_nothing(name: str) -> None:
    """A wrong shape, a wrong layer, no positions or too many: an error, and the cache is as before.

    KIND: boundary.
    """
    cache = small()
    k, v = block(2, 1), block(2, 2)
    fill(cache, k, v)
    layer, bad_k, bad_v = BAD_UPDATES[name]
    with pytest.raises(ValueError):
        cache.update(layer, bad_k, bad_v)
    assert cache.seq_len(0) == cache.seq_len(1) == 2
    for got_k, got_v in fill(cache, block(4, 3), block(4, 4)):  # filled to the brim, so every position is checked
        assert np.array_equal(got_k, np.concatenate([k, block(4, 3)], axis=2))
        assert np.array_equal(got_v, np.concatenate([v, block(4, 4)], axis=2))


def test_nbytes_is_what_was_preallocated() -> None:
    """Keys and values, every layer, head and position, before the first one is written.

    KIND: unit, smoke.
    """
    for dtype, size in ((np.float16, 2), (np.float32, 4), (np.float64, 8)):
        assert KVCache(4, 3, 8, 10, batch=2, dtype=dtype).nbytes() == 2 * 4 * 2 * 3 * 10 * 8 * size
    cache = small()
    before = cache.nbytes()
    fill(cache, block(3), block(3))
    assert cache.nbytes() == before == 2 * 2 * 2 * 6 * 3 * 4


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), max_size=15), st.sampled_from([np.float16, np.float32])
)
def test_any_sequence_of_updates_and_cuts_behaves_like_a_list(steps: list[tuple[int, int]], dtype: Any) -> None:
    """Append and truncate in any order: the cache is a list of positions, in every layer.

    KIND: property.
    """
    cache = small(dtype=dtype, max_len=12)
    k_held, v_held = block(0), block(0)
    for i, (t, keep) in enumerate(steps):
        k, v = block(t, 2 * i), block(t, 2 * i + 1)
        n = k_held.shape[2]
        if n + t > 12:
            with pytest.raises(ValueError):
                cache.update(0, k, v)
        else:
            assert cache.positions(t).tolist() == list(range(n, n + t))
            assert cache.mask(t).shape == (t, n + t)
            k_held = np.concatenate([k_held, k.astype(dtype).astype(np.float32)], axis=2)
            v_held = np.concatenate([v_held, v.astype(dtype).astype(np.float32)], axis=2)
            for got_k, got_v in fill(cache, k, v):
                assert np.array_equal(got_k, k_held) and np.array_equal(got_v, v_held)
        n = k_held.shape[2]
        if keep <= n:
            cache.truncate(keep)
            k_held, v_held = k_held[:, :, :keep], v_held[:, :, :keep]
        else:
            with pytest.raises(ValueError):
                cache.truncate(keep)
        assert cache.seq_len() == k_held.shape[2]
