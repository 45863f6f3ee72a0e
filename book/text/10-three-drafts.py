# %% [markdown]
# # 10 Three drafts
#
# You will build the prompt-lookup draft as a plain scan, meet the n-gram draft and the model draft, and know for each of
# them what it must report so that the verifier stays exact.
#
# A draft is anything with `propose(ctx, k, rng)`. It returns at most `k` ids and $q$, the distributions it drew them
# from, one row an id. With `rng=None` it is asked for its greedy guess. If nothing was drawn, it returns `None` for $q$,
# and the verifier takes $q$ as certain: 1 at the proposed id.

# %%
import numpy as np

from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams, request_rng
from tinyllm.infer.spec import ModelDraft, NGramDraft, PromptLookupDraft, speculative_generate
from tinyllm.lm.ngram import NGramLM
from tinyllm.num.rng import PCG32
from tinyllm.tok.bytes import ByteTokenizer

tok = ByteTokenizer()

# %% [markdown]
# ## Prompt lookup: copy what came next
#
# Take the last $n$ ids of the context. Find their most recent earlier occurrence. Propose what followed it. Try the
# longest $n$ first, since a longer match is a better reason to copy.
#
# **Predict** the draft for the context `1 2 3 9 1 2 4 1 2` with $k = 3$: two places match.

# %%
def scan(ctx: list[int], k: int, max_ngram: int = 3, min_ngram: int = 1) -> list[int]:
    """Prompt lookup as it is defined: no index, just look."""
    for n in range(max_ngram, min_ngram - 1, -1):
        suffix = ctx[-n:]
        for start in range(len(ctx) - n - 1, -1, -1):  # the most recent first, never the suffix itself
            if ctx[start : start + n] == suffix:
                return ctx[start + n : start + n + k]
    return []


print(scan([1, 2, 3, 9, 1, 2, 4, 1, 2], 3))
assert scan([1, 2, 3, 9, 1, 2, 4, 1, 2], 3) == [4, 1, 2]
assert scan([1, 2, 3, 9, 1, 2], 3) == [3, 9, 1]
assert scan([1, 2, 3], 3) == []

# %% [markdown]
# The scan reads the whole context each round. The package keeps an index of every n-gram instead. Is it the same
# function? Few symbols make many matches, so compare the two on random contexts over two to five symbols. One draft
# object serves all of them: what its index remembers of one context must not leak into the next.

# %%
rng = PCG32(10).substream("shuffle")
lookup = PromptLookupDraft(max_ngram=3, min_ngram=1)
found = 0
for _ in range(3000):
    symbols = 2 + rng.below(4)
    ctx = [rng.below(symbols) for _ in range(rng.below(25))]
    k = rng.below(6)
    proposed, q = lookup.propose(ctx, k, None)
    assert q is None and proposed == scan(ctx, k), (ctx, k)
    found += bool(proposed)
print("3000 contexts, all equal;", found, "with a draft")
assert 1000 < found < 3000

# %% [markdown]
# **Its contract:** at most $k$ ids, possibly none, and $q$ is `None`, at every temperature. It never draws, so it must
# not touch the generator.

# %%
generator = request_rng(1)
before = generator.state()
print(lookup.propose([5, 6, 5], 2, generator))
assert generator.state() == before

# %% [markdown]
# ## The n-gram draft: count what usually follows
#
# The lookup trusts one occurrence. An n-gram model counts all of them and smooths. Here it is one over bytes.

# %%
TEXT = (
    "the cat sat on the mat. the dog sat on the log. the cat saw the dog and the dog saw the cat. "
    "the cat ran to the mat and the dog ran to the log. "
) * 2
trigram = NGramLM(3, vocab_size=256).fit([tok.encode(TEXT)])
draft = NGramDraft(trigram)
ctx = tok.encode("the cat s")
ids, q = draft.propose(ctx, 6, None)
print("greedy:", repr(tok.decode(ids)), "q:", q)
assert q is None and ids[0] == int(np.argmax(trigram.logprobs(ctx)))

# %% [markdown]
# With a generator it samples. **Predict** the shape of $q$ for $k = 6$, and what its rows add up to.

# %%
ids, q = draft.propose(ctx, 6, request_rng(3))
print("sampled:", repr(tok.decode(ids)), "q:", q.shape, "sums", np.round(q.sum(axis=1), 6).tolist())
assert q.shape == (6, 256) and np.allclose(q.sum(axis=1), 1)
for i in range(6):
    assert np.allclose(q[i], np.exp(trigram.logprobs(ctx + ids[:i])))

# %% [markdown]
# **Its contract:** row $i$ of $q$ is the model's distribution after the context *and the ids proposed before*. If it
# reported the distribution after the context alone, every single number would look plausible and the output would be
# wrong.
#
# ## The model draft: a smaller model guesses
#
# A draft can be a whole language model with a cache of its own. To have two models here without a file, wrap n-gram
# models: anything with `forward(ids, positions, cache)` can serve the loops.

# %%
class CountedModel:
    """An n-gram model that looks like a transformer to the loops: it keeps its tokens in the key cache."""

    n_layers, n_kv_heads, d_head, vocab_size, max_len = 1, 1, 1, 256, 512

    def __init__(self, lm: NGramLM) -> None:
        self.lm, self.rows = lm, 0

    def forward(self, ids, positions=None, cache=None):
        new = np.asarray(ids, dtype=np.float32)[None, :, :, None]  # [1, 1, T, 1]
        seen = new if cache is None else cache.update(0, new, new)[0]
        context = [int(t) for t in seen[0, 0, :, 0]]
        count = new.shape[2]
        self.rows += count
        ends = range(len(context) - count + 1, len(context) + 1)
        return np.array([[self.lm.logprobs(context[:end]) for end in ends]])  # [1, T, V]


target = CountedModel(NGramLM(6, vocab_size=256).fit([tok.encode(TEXT)]))
small = CountedModel(trigram)
model_draft = ModelDraft(small)
first, _ = model_draft.propose(ctx, 4, None)
print("proposed:", repr(tok.decode(first)), "rows computed:", small.rows)
assert first == draft.propose(ctx, 4, None)[0]

# %% [markdown]
# Now the target rejects the second guess and puts `!` in its place. The draft's cache holds a token that never
# happened. **Predict:** how many rows must the draft compute for its next 4 guesses?

# %%
changed = ctx + first[:1] + tok.encode("!")
small.rows = 0
second, _ = model_draft.propose(changed, 4, None)
print("rows computed:", small.rows)
fresh, _ = ModelDraft(CountedModel(trigram)).propose(changed, 4, None)
assert second == fresh and small.rows == 4

# %% [markdown]
# Four: the cache keeps what both contexts share, drops the rest, and feeds only the new token before guessing on.
#
# **Its contract:** as for the n-gram draft, and at its own temperature: $q$ is what it really drew from, not what it
# would have drawn from at another temperature.
#
# ## Side by side
#
# All three now draft for the same target at temperature 0. **Predict:** which accepts most? Which changes the output?

# %%
prompt = "the cat sat on the mat. the dog "
params = SamplingParams(temperature=0, max_tokens=60)
plain = generate(target, tok, prompt, params)
print(repr(plain.text))
results = {}
for name, one in {
    "prompt lookup": PromptLookupDraft(),
    "n-gram": NGramDraft(trigram),
    "model": ModelDraft(CountedModel(trigram)),
}.items():
    results[name] = run = speculative_generate(target, one, tok, prompt, params, k=4)
    assert run.ids == plain.ids and run.logprobs == plain.logprobs
    print(f"{name:14} accepted {run.stats['acceptance_rate']:.2f}, passes {run.stats['target_calls']:.0f}")

# %%
figure, (ax,) = new_figure(height=2.4)
for row, (name, run) in enumerate(results.items()):
    accepted, drafted = run.stats["accepted"], run.stats["drafted"]
    ax.barh(row, accepted, color=PALETTE["kept"], label="kept" if row == 0 else None)
    ax.barh(row, drafted - accepted, left=accepted, color=PALETTE["rejected"], label="rejected" if row == 0 else None)
ax.set(yticks=range(3), yticklabels=list(results), xlabel="draft tokens")
ax.invert_yaxis()
ax.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
show(figure, "Draft tokens kept of those proposed: " + ", ".join(
    f"{name} {run.stats['accepted']:.0f} of {run.stats['drafted']:.0f}" for name, run in results.items()) + ".")
assert results["n-gram"].rounds == results["model"].rounds

# %% [markdown]
# The output never changes. The n-gram and the model draft agree here because both wrap the same counts; they differ
# in price: a real model draft pays a pass for each guess.

# %% [markdown]
# ## Your turn: the oldest occurrence
#
# Change the scan so that it copies from the *oldest* match. Find a context where the two differ. Which would you rather
# trust in a text whose subject changes?

# %%
def my_oldest(ctx, k):
    return None  # your answer


if my_oldest([1, 2, 1, 3, 1], 1) is not None:
    print(my_oldest([1, 2, 1, 3, 1], 1) == [2])

# %% tags=["solution"]
# Solution
def my_oldest(ctx, k, max_ngram=3):
    for n in range(max_ngram, 0, -1):
        for start in range(len(ctx) - n):
            if ctx[start : start + n] == ctx[-n:]:
                return ctx[start + n : start + n + k]
    return []


print("oldest", my_oldest([1, 2, 1, 3, 1], 1), "most recent", scan([1, 2, 1, 3, 1], 1))
assert my_oldest([1, 2, 1, 3, 1], 1) == [2] and scan([1, 2, 1, 3, 1], 1) == [3]

# %% [markdown]
# ## Your turn: a draft of your own
#
# Write a draft that always proposes the last id again, `k` times. What must it report as $q$?

# %%
class MyDraft:
    def propose(self, ctx, k, rng):
        return [], None  # your answer


if MyDraft().propose([7], 2, None)[0]:
    print(MyDraft().propose([7], 2, None) == ([7, 7], None))

# %% tags=["solution"]
# Solution
class MyDraft:
    def propose(self, ctx, k, rng):
        return [ctx[-1]] * k, None  # nothing is drawn, so there is no q to report


run = speculative_generate(target, MyDraft(), tok, prompt, params, k=4)
print(f"accepted {run.stats['acceptance_rate']:.2f}, output unchanged: {run.ids == plain.ids}")
assert MyDraft().propose([7], 2, None) == ([7, 7], None) and run.ids == plain.ids

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_prompt_lookup_hand_example` | longest match first, the most recent one, never more than $k$ |
# | `test_prompt_lookup_follows_a_context_that_changes` | the index forgets what is no longer there |
# | `test_prompt_lookup_draws_nothing` | no uniform is taken |
# | `test_ngram_draft_follows_the_model` | the argmax chain, and $q$ as the model's own rows |
# | `test_model_draft_syncs_its_cache` | after a rejection, the guesses of a fresh cache |
# | `test_model_draft_reports_what_it_drew_from` | $q$ at the draft's own temperature |
#
# ## If you skip this
#
# Chapter 11 rolls the target's cache back and needs any draft at all; chapter 13 runs all three on a real model.
#
# ## Going further
#
# - Saxena, *Prompt Lookup Decoding*, 2023: the copying draft.
# - Chen and Goodman, *An Empirical Study of Smoothing Techniques for Language Modeling*, 1999: the counts behind the
#   n-gram draft.
# - Leviathan, Kalman, Matias, *Fast Inference from Transformers via Speculative Decoding*, ICML 2023: section 3 on the
#   choice of a draft model.
