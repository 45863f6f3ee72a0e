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
from itertools import product
from types import SimpleNamespace

import numpy as np

import ol
from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams, request_rng
from tinyllm.infer.spec import ModelDraft, NGramDraft, PromptLookupDraft, speculative_generate, verify_draft
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
# The scan is finished work already. Give it the shape of a draft, and the course's tests will have it.

# %% tags=["nbval-ignore-output"]
class MyLookup:
    """The scan as a draft."""

    def __init__(self, max_ngram=3, min_ngram=1):
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(f"1 <= min_ngram <= max_ngram is wanted, not {min_ngram} and {max_ngram}.")
        self.max_ngram, self.min_ngram = max_ngram, min_ngram

    def propose(self, ctx, k, rng=None):
        return scan(list(ctx), k, self.max_ngram, self.min_ngram), None


verdict = ol.check("L8.6", PromptLookupDraft=MyLookup)
assert verdict
verdict

# %% [markdown]
# ### Which occurrence?
#
# Engines differ here. Ours copies from the most recent place, and so does llama.cpp's simple lookup; transformers takes the
# leftmost match, and vLLM the earliest among its longest ones. Neither is wrong, for the verifier makes up for any draft.
# **Predict:** in the endless `1 2 3 1 2 3 ...`, asked for 9 ids, which of the two drafts more? And in a text that has
# changed its subject, which is right more often?

# %%
def earliest(ctx, k):
    """The scan, from the other end."""
    for n in (3, 2, 1):
        for start in range(len(ctx) - n):
            if ctx[start : start + n] == ctx[-n:]:
                return ctx[start + n : start + n + k]
    return []


periodic, changed_subject = [1, 2, 3] * 6, [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3, 5, 1, 2, 3]
for name, ctx in (("periodic", periodic), ("changed subject", changed_subject)):
    print(f"{name:16s} most recent {scan(ctx, 9)}, earliest {earliest(ctx, 9)}")
assert len(scan(periodic, 9)) == 3 and len(earliest(periodic, 9)) == 9
assert scan(changed_subject, 9)[0] == 5 and earliest(changed_subject, 9)[0] == 4

# %% [markdown]
# On the loop the earliest place drafts far, and the most recent one a single period, because there the context ends. After a
# change of subject the most recent place knows the new one. A rule that another engine is to follow must say which.
#
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
# The lookup trusts one occurrence. The model made of counts (chapter 04), an **n-gram model**, weighs all of them and
# calls no token impossible. Here is one over bytes, with $n = 3$.

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
# A draft can be a whole language model with a **cache** of its own (chapter 06), the store of what it has computed for
# the tokens it has read.
#
# To have two models here without a file, wrap n-gram models: anything with `forward(ids, positions, cache)` can serve
# the loops. An n-gram model computes nothing worth storing, so ours puts the tokens themselves in the cache. It counts
# the **rows** it computes, one for each token it reads.

# %%
class CountedModel:
    """An n-gram model that looks like a transformer to the loops: its tokens stand where keys would."""

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
assert len(ctx) == 9 and small.rows == 9 + 3

# %% [markdown]
# The context has 9 ids, and reading them gives the first guess. Each guess but the last is then read back to make the
# next. The last never is, so four guesses cost $9 + 3 = 12$ rows.
#
# Now the target rejects the second guess and puts `!` in its place. The draft's cache holds a token that never
# happened. **Predict:** how many rows must the draft compute for its next 4 guesses?

# %%
changed = ctx + first[:1] + tok.encode("!")
held = ctx + first[:3]  # the ids that the draft has read
shared = next(i for i, (a, b) in enumerate(zip(held, changed)) if a != b)
small.rows = 0
second, _ = model_draft.propose(changed, 4, None)
print("ids shared with the cache:", shared, "of", len(changed), "rows computed:", small.rows)
fresh, _ = ModelDraft(CountedModel(trigram)).propose(changed, 4, None)
assert second == fresh and (shared, len(changed)) == (10, 11) and small.rows == 1 + 3

# %% [markdown]
# Four. The cache shares 10 ids with the new context; it keeps those and drops the rest. That leaves one row for `!`,
# and three for the guesses before the last.
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
#
# | draft | a guess costs | it shines | it reports as $q$ |
# |---|---|---|---|
# | prompt lookup | a look into an index | where the output repeats the input: edits of code, quotations, summaries | nothing: it never draws |
# | n-gram | a look into a table of counts | where the text resembles the one that was counted | the counted distribution, when it draws |
# | model | a pass of its own, $k$ of them a round | anywhere it has learnt what the target has | its distribution at its own temperature, when it draws |
#
# Chapter 13 puts all three before a real model, on tasks where they shine and on tasks where they do nothing. The **acceptance
# rate**, kept over proposed, tells whether a draft is worth its price; chapter 12 says how.

# %% [markdown]
# ## Your turn: the oldest occurrence
#
# Change the scan so that it copies from the *oldest* match. Then find a context whose longest repeated ending occurs at
# exactly two earlier places, and for which the two scans differ. Which would you rather trust in a text whose subject
# changes?

# %%
def my_oldest(ctx, k):
    return None  # your answer, a list of at most k ids


my_context = None  # your answer, a list of ids


def judge_oldest(oldest):
    """What is wrong with it, in words. Whatever is written later, the oldest match stays the oldest."""
    numbers = PCG32(11).substream("shuffle")
    if oldest([1, 2, 3], 2) != []:
        return "nothing repeats in [1, 2, 3], so there is nothing to copy."
    for _ in range(500):
        ctx = [numbers.below(3) for _ in range(12)]
        if sum(ctx[i : i + 3] == ctx[-3:] for i in range(9)) != 1:
            continue  # with one earlier place, the oldest is the most recent
        if oldest(ctx, 1) != scan(ctx, 1):
            return f"{ctx} has one match of three ids, and the draft is not what followed it."
        longer = ctx + [numbers.below(3) for _ in range(6)] + ctx[-3:]
        if oldest(longer, 1) != scan(ctx, 1):
            return f"{longer} has an older match of three ids than the one copied."
    for _ in range(500):
        ctx = [numbers.below(4) for _ in range(8)]
        places = {n: sum(ctx[i : i + n] == ctx[-n:] for i in range(8 - n)) for n in (3, 2, 1)}
        n = next((n for n in places if places[n] == 1), None)  # then nothing longer matches
        if n is None:
            continue
        for k in (0, 1, 3):
            if oldest(ctx, k) != scan(ctx, k):
                return f"{ctx} has one match of length {n}, so with k = {k} the draft should be {scan(ctx, k)}."
        longer = [*ctx, 9, *ctx[-n:]]
        if oldest(longer, 2) != [*scan(ctx, 2), 9][:2]:
            return f"{longer} has an older match of length {n} than the one copied."
    return None


def judge_context(ctx):
    """What is wrong with it, in words."""
    for n in (3, 2, 1):
        followers = [ctx[i + n] for i in range(len(ctx) - n) if ctx[i : i + n] == ctx[-n:]]
        if followers:
            break
    if len(followers) != 2:
        return f"earlier places of its longest repeated ending: {len(followers)}; two are wanted."
    return "the same id followed both times." if followers[0] == followers[1] else None


if my_oldest([1], 1) is not None:
    print("the scan:", judge_oldest(my_oldest) or "right.")
if my_context is not None:
    print("the context:", judge_context(my_context) or "right.")

# %% tags=["solution"]
# Solution
def my_oldest(ctx, k, max_ngram=3):
    for n in range(max_ngram, 0, -1):
        for start in range(len(ctx) - n):
            if ctx[start : start + n] == ctx[-n:]:
                return ctx[start + n : start + n + k]
    return []


my_context = [1, 2, 1, 3, 1]
print("oldest", my_oldest(my_context, 1), "most recent", scan(my_context, 1))
assert my_oldest(my_context, 1) == [2] and scan(my_context, 1) == [3]
assert judge_oldest(my_oldest) is None and judge_context(my_context) is None
assert judge_oldest(scan) is not None
# When the subject changes, the most recent occurrence is the better witness: it belongs to the present subject.

# %% [markdown]
# ## Your turn: a draft of your own
#
# Write a draft that always proposes the last id again, `k` times. What must it report as $q$, so that the verifier's
# output is exactly the target's?

# %%
class MyDraft:
    def ids(self, ctx, k):
        return ...  # your answer, a list of ids

    def q(self, ids):
        return ...  # your answer, what it reports about these ids

    def propose(self, ctx, k, rng):
        ids = self.ids(ctx, k)
        return ids, self.q(ids)


def judge_q(q_of):
    """What is wrong with it, in words: the target's first token over all pairs of uniforms, then a draft of two ids."""
    wanted = np.zeros(256)
    wanted[[7, 8, 9]] = 0.25, 0.5, 0.25
    with np.errstate(divide="ignore"):
        rows = np.log([wanted, wanted])  # [m + 1, V]
    emitted = np.zeros(256)
    for u, v in product([(j + 0.5) / 24 for j in range(24)], repeat=2):
        source = SimpleNamespace(uniform=iter([u, v, 0.5]).__next__)
        try:
            emitted[verify_draft(rows, [7], q_of([7]), SamplingParams(), [], source)[0][0]] += 1 / 24**2
        except (TypeError, ValueError) as error:
            return f"the verifier refuses it. {error}"
    if not np.allclose(emitted, wanted):
        return "the output does not have the target's distribution."
    two = q_of([7, 8])
    return None if two is None or np.array_equal(two, np.eye(256)[[7, 8]]) else "q must have one row for each id."


mine = MyDraft()
if mine.ids([7], 2) is not ...:
    right = all(mine.ids([5, x], k) == [x] * k for x in (7, 9) for k in (0, 1, 3))
    print("the ids:", "right." if right else "not yet. The last id of the context, k times, as a list.")
if mine.q([7]) is not ...:
    print("q:", judge_q(mine.q) or "right.")

# %% tags=["solution"]
# Solution
class MyDraft:
    def ids(self, ctx, k):
        return [ctx[-1]] * k

    def q(self, ids):
        return None  # nothing is drawn, so there is no q to report; rows that are 1 at each id say the same

    def propose(self, ctx, k, rng):
        ids = self.ids(ctx, k)
        return ids, self.q(ids)


run = speculative_generate(target, MyDraft(), tok, prompt, params, k=4)
print(f"accepted {run.stats['acceptance_rate']:.2f}, output unchanged: {run.ids == plain.ids}")
assert MyDraft().propose([7], 2, None) == ([7, 7], None) and run.ids == plain.ids
assert judge_q(MyDraft().q) is None and judge_q(lambda ids: np.eye(256)[ids]) is None
assert judge_q(lambda ids: np.full((len(ids), 256), 1 / 256)) is not None
assert judge_q(lambda ids: np.eye(256)[ids[:1]]) is not None

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
# Chapter 11 rolls the target's cache back and needs any draft at all; chapter 13 runs all three on a real model. All three
# are in the file that `ol start L8.6` gives you to fill.
#
# ## Going further
#
# - Saxena, *Prompt Lookup Decoding*, 2023: the copying draft. vLLM's n-gram proposer finds the match in one pass over the
#   reversed context and has a least and a greatest n; transformers calls it `prompt_lookup_num_tokens`.
# - Chen and Goodman, *An Empirical Study of Smoothing Techniques for Language Modeling*, 1999: the counts behind the
#   n-gram draft.
# - Leviathan, Kalman, Matias, *Fast Inference from Transformers via Speculative Decoding*, ICML 2023: section 3 on the
#   choice of a draft model.
# - Oliaro et al., *SuffixDecoding*, 2024, and He et al., *REST*, 2024: lookup in earlier answers, and in a large store.
