# %% [markdown]
# # 12 How fast
#
# You will predict how many tokens a target pass gives, what a draft may cost before it stops paying, and which draft
# length is best, and you will set the formula beside measured runs.

# %%
from fractions import Fraction as F
from itertools import product

import numpy as np

from tinyllm.explore import acceptance, draft_shape, recordings
from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import NGramDraft, PromptLookupDraft, speculative_generate
from tinyllm.lm.ngram import NGramLM
from tinyllm.num.rng import PCG32
from tinyllm.tok.bytes import ByteTokenizer

# %% [markdown]
# ## Tokens per pass
#
# Let $\alpha$ be the probability that a draft token is kept, and suppose the tokens of a round are kept independently.
# The first is kept with probability $\alpha$, the first two with $\alpha^2$, and so on. Every round adds one token of
# the target's own, so a round of $k$ drafts emits on average
#
# $$1 + \alpha + \alpha^2 + \dots + \alpha^k = \frac{1 - \alpha^{k+1}}{1 - \alpha}.$$
#
# **Predict:** with $\alpha = 0.8$ and $k = 4$, is that nearer to 2, 3 or 5?

# %%
alpha, k = F(4, 5), 4
tokens = sum(alpha**i for i in range(k + 1))
assert tokens == (1 - alpha ** (k + 1)) / (1 - alpha)
print(f"{float(tokens):.2f} tokens per pass")
assert round(float(tokens), 2) == 3.36

# %% [markdown]
# **Proof.** Let $n$ be the number of kept drafts. Position $i$ is kept exactly when the first $i$ all are, so $n$ is the number of
# $i$ with $n \ge i$, and its mean is $\mathrm{P}(n \ge 1) + \dots + \mathrm{P}(n \ge k) = \alpha + \dots + \alpha^k$, by independence. The
# round emits $n + 1$. The closed form is the geometric sum, and $k + 1$ when $\alpha = 1$. $\square$ Beside it, the same by brute
# force: every way in which four coins can fall.

# %%
mean = F(0)
for coins in product([True, False], repeat=k):
    n = next((i for i, kept in enumerate(coins) if not kept), k)  # kept until the first failure
    chance = F(1)
    for kept in coins:
        chance *= alpha if kept else 1 - alpha
    mean += chance * (n + 1)
print(f"16 cases: {mean} = {float(mean):.4f}")
assert mean == tokens == F(2101, 625)

# %% [markdown]
# What is $\alpha$? At one place in a text it is $1 - \mathrm{TV}(p, q)$, the overlap of chapters 02 and 09. Over a whole text it
# stands for an average of overlaps, and the formula acts as if every place had that same overlap. Remember this; it is where
# the formula will fail.
#
# ## The acceptance rate is not alpha
#
# The **acceptance rate** that engines report is accepted over drafted. **Predict:** at $\alpha = 0.8$ and $k = 4$, is it
# 0.8, more, or less?

# %%
rate = sum(alpha**i for i in range(1, k + 1)) / k
assert rate == alpha * (1 - alpha**k) / (k * (1 - alpha))
print(f"acceptance rate {float(rate):.2f}")
assert round(float(rate), 2) == 0.59

# %% [markdown]
# It is less. After a rejection the rest of the draft is thrown away without being judged, yet it counts as drafted. To
# estimate $\alpha$ from a run, divide by what was judged:
# $\hat\alpha = \text{accepted} / (\text{accepted} + \text{rejected positions})$. A round that ends in a rejection has one
# rejected position, the one at which it stopped; a round that keeps its whole draft has none.
#
# ## What a draft costs
#
# If one draft token takes a fraction $c$ of a target pass, a round takes $1 + ck$ passes' time, and the speedup is
#
# $$\frac{1 + \alpha + \dots + \alpha^k}{1 + ck}.$$
#
# This assumes that a pass over $k + 1$ tokens costs what a pass over one costs. Copying from the prompt has $c$ near 0; a
# model draft has the $c$ of its own passes.
#
# When does one more draft token pay? The $k$-th brings $\alpha^k$ tokens and costs $c$ passes. **Predict:** at $\alpha = 0.8$ and
# $c = 0.05$, $\alpha^k$ stays above $c$ up to $k = 13$. Is the best $k$ 13, less, or more?
#
# Here is the condition. Going from $k - 1$ to $k$ adds $\alpha^k$ tokens to what a round emits, $E$, and $c$
# to the time it takes, $T$. The ratio rises, $(E + \alpha^k) / (T + c) > E / T$, exactly while $\alpha^k > c \cdot E / T$:
# what the token brings must exceed its cost **times the speedup so far**, for in the time $c$ you would otherwise emit
# $c \cdot E / T$ tokens.
#
# And once a token does not pay, no later one does. Write $S_k$ for the speedup at $k$. It is a weighted mean of the speedup
# before and of what the new token brings for its cost, $S_k = \frac{T \cdot S_{k-1} + c \cdot \alpha^k / c}{T + c}$, so it lies
# between the two. If the $k$-th token did not pay, $\alpha^k / c \le S_{k-1}$, then $S_k \ge \alpha^k / c \ge \alpha^{k+1} / c$: the
# next does not pay either. So the best $k$ is found by adding tokens until the first that does not pay. The cell checks both
# statements against a search over every $k$.

# %%
longest = acceptance.LONGEST  # the search tries 0 to 16
for cost in (0.0, 0.05, 0.2):
    row = acceptance.compute(0.8, cost, range(longest + 1))
    best = acceptance.best_k(0.8, cost)
    pays = [k for k in range(1, longest + 1) if 0.8**k > cost * row.speedup[k - 1]]
    print(f"cost {cost:.2f}: best k {best:2d}, speedup {row.speedup[best]:.2f}; at k = {longest} {row.speedup[longest]:.2f}")
    assert pays == list(range(1, best + 1))
assert 0.8**13 > 0.05 > 0.8**14 and acceptance.best_k(0.8, 0.05) < 13

# %% [markdown]
# Less: the bar rises with every token that has paid. With a free draft there is no best $k$, for each further token adds
# a little; the search says 16 only because it tries nothing longer.

# %% [markdown]
# ## Measured runs
#
# Now runs to compare with. The target is an n-gram model of a small text, which has counted what follows each run of
# tokens (chapter 04 builds it), sampled at temperature 1; the drafts are a
# prompt lookup and weaker n-gram models of the same text. Each run reports its rounds, so $\hat\alpha$ comes from what
# happened. Beside the tokens per pass that were measured stands what the formula makes of $\hat\alpha$ and $k = 4$.
#
# **Predict:** for which of the four drafts will the two differ most?

# %%
LINES = [
    "the draft guesses the next tokens and the target checks the guesses in one pass. ",
    "the target keeps the tokens it agrees to and adds one token of its own. ",
    "a rejected token leaves no trace in the cache. ",
    "a good draft is kept often and a bad draft is kept rarely. ",
]
order = PCG32(12).substream("shuffle")
text = "".join(LINES[order.below(4)] for _ in range(60))
tok = ByteTokenizer()


class NGramTarget:
    """An n-gram model behind `forward`, so that it can be a target: each row from the ids up to it."""

    n_layers, n_kv_heads, d_head, max_len = 1, 1, 1, 600

    def __init__(self, n):
        self.lm = NGramLM(n, vocab_size=tok.vocab_size)
        self.lm.fit([tok.encode(text)])

    def forward(self, ids, positions, cache):
        new = np.asarray(ids, dtype=np.float32).reshape(1, 1, -1, 1)
        held = [int(v) for v in cache.update(0, new, new)[0][0, 0, :, 0]]
        start = len(held) - ids.shape[1]
        return np.stack([self.lm.logprobs(held[: start + i + 1]) for i in range(ids.shape[1])])[None]


target = NGramTarget(5)
drafts = {
    "prompt lookup": PromptLookupDraft(),
    "2-gram": NGramDraft(NGramTarget(2).lm),
    "3-gram": NGramDraft(NGramTarget(3).lm),
    "4-gram": NGramDraft(NGramTarget(4).lm),
}
runs, off = [], {}


def emitted_by(alpha, lengths):
    """Tokens per pass by the formula, fed with the length of each round's own draft."""
    return np.mean(acceptance.compute(alpha, 0.0, lengths).tokens)


for name, draft in drafts.items():
    for k in (2, 4, 8):
        made = speculative_generate(target, draft, tok, text[:150], SamplingParams(seed=1, max_tokens=300), k=k)
        rejected = sum(r.kind == "correction" for r in made.rounds)
        run = acceptance.Run(name, k, int(made.stats["drafted"]), int(made.stats["accepted"]), rejected,
                             len(made.ids) / len(made.rounds))
        runs.append(run)
        if k == 4:
            formula = acceptance.compute(run.alpha, 0.0, [k]).tokens[0]
            off[name] = run.tokens_per_pass - formula
            short = sum(len(r.draft) < k for r in made.rounds)
            print(f"{name:14s} alpha about {run.alpha:.2f}: {run.tokens_per_pass:.2f} tokens per pass, formula {formula:.2f}; "
                  f"{short:2d} of {len(made.rounds)} drafts were shorter than {k}; "
                  f"with their own lengths {emitted_by(run.alpha, [len(r.draft) for r in made.rounds]):.2f}")
assert all(0 < run.alpha < 1 for run in runs)
assert off["prompt lookup"] < -0.15 and all(abs(off[name]) < 0.03 for name in drafts if name != "prompt lookup")

# %% [markdown]
# In these runs the n-gram drafts are within three hundredths of the formula. Prompt
# lookup emits a fifth of a token less a pass than the formula says. About half of that is short drafts: where it finds nothing to copy, or
# the copy ends, the formula still counts 4. Fed with the drafts' own lengths it says 2.49 instead of 2.60.
# The picture shows the same four runs as squares, for this $k$. Three lie on the curve; prompt lookup lies below it.

# %%
acceptance.picture(0.8, 0.05, 4, runs)

# %% [markdown]
# What is left is 0.09. Is that the noise of one run of 125 rounds? Ask other seeds, and the 3-gram draft too. **Predict** for
# each of the two: will four new runs lie on both sides of the formula, or on one?

# %%
left, per_pass = {"prompt lookup": [], "3-gram": []}, []
for name in left:
    for seed in range(2, 6):
        made = speculative_generate(target, drafts[name], tok, text[:150], SamplingParams(seed=seed, max_tokens=300), k=4)
        accepted = made.stats["accepted"]
        estimate = accepted / (accepted + sum(r.kind == "correction" for r in made.rounds))
        by_lengths = emitted_by(estimate, [len(r.draft) for r in made.rounds])
        left[name].append(len(made.ids) / len(made.rounds) - by_lengths)
        per_pass += [len(made.ids) / len(made.rounds)] * (name == "prompt lookup")
    noise = np.std(left[name], ddof=1)
    print(f"{name:14s} measured less formula with own lengths:", "  ".join(f"{d:+.2f}" for d in left[name]),
          f" mean {np.mean(left[name]):+.2f}, standard error {noise / np.sqrt(len(left[name])):.2f}")
    assert (np.mean(left[name]) < -4 * noise / np.sqrt(len(left[name]))) == (name == "prompt lookup")
print("prompt lookup, tokens per pass: ", "  ".join(f"{n:.2f}" for n in per_pass))
assert max(left["prompt lookup"]) < 0 < max(left["3-gram"]) and min(left["3-gram"]) < 0
assert np.std(per_pass, ddof=1) > np.std(left["prompt lookup"], ddof=1)

# %% [markdown]
# The 3-gram lies on both sides, prompt lookup below in every run: its difference is not noise. (The tokens per pass
# themselves scatter more from run to run. But $\hat\alpha$ comes from the same rounds and moves with them, and the difference between the two
# is steadier than either.)
#
# So the rest is the assumption. The formula takes every token's chance as equal and independent. In text neither need hold:
# some stretches are easy and kept whole, others fail at once. Take the simplest such text: half of the rounds are easy, with
# $\alpha = 0.9$, half are hard, with $\alpha = 0.3$, and within a round everything is independent. **Predict:** with the
# $\hat\alpha$ that a long run of such rounds would show, does the formula promise too much or too little?

# %%
k, kinds = 4, (F(9, 10), F(3, 10))
emitted = sum(sum(a**i for i in range(k + 1)) for a in kinds) / 2
kept = emitted - 1
rejected = sum(1 - a**k for a in kinds) / 2  # a round has a rejection unless all k are kept
shown = kept / (kept + rejected)
promised = sum(shown**i for i in range(k + 1))
print(f"alpha estimated {float(shown):.3f}: formula {float(promised):.2f}, the truth {float(emitted):.2f} tokens per pass")
at_the_mean = sum(F(6, 10) ** i for i in range(k + 1))
print(f"at the mean of 0.9 and 0.3 the formula would say {float(at_the_mean):.2f}")
assert promised > emitted > at_the_mean
judged = [sum(a**i for i in range(k)) for a in kinds]  # position i + 1 is judged when the first i were kept
print(f"judged in an easy round {float(judged[0]):.2f}, in a hard one {float(judged[1]):.2f}")
assert sum(judged) / 2 == kept + rejected
mean_kept, mean_rejected = sum(kinds) / 2, sum(1 - a for a in kinds) / 2  # the same at k = 1
assert 1 + mean_kept / (mean_kept + mean_rejected) == 1 + mean_kept

# %% [markdown]
# Too much. An easy round has 3.44 positions judged on average and a hard one 1.42, so the easy ones outvote the hard ones in
# $\hat\alpha$: the estimate knows judged tokens, and not rounds. (With the plain mean of the two the formula errs the other way.)
# At $k = 1$ every round has one position judged, nobody is outvoted, and formula and truth are equal.
#
# The trace of such a mixture is an acceptance that depends on the position. Look at the chance of being kept, given that the position
# was reached. Few rounds reach the far positions, so only those that at least 20 rounds reached are drawn, and each with a bar
# of one standard error up and down: of 20 rounds a share is known to about a tenth.

# %%
figure, (ax,) = new_figure()
widest, enough = 8, 20
first_two = {}
for name, marker, colour in (("prompt lookup", "o-", "draft"), ("2-gram", "s-", "rejected"), ("4-gram", "^-", "target")):
    made = speculative_generate(target, drafts[name], tok, text[:150], SamplingParams(seed=1, max_tokens=300), k=widest)
    reached = [sum(r.accepted >= i and len(r.draft) > i for r in made.rounds) for i in range(widest)]
    kept = [sum(r.accepted > i for r in made.rounds) for i in range(widest)]
    shares = [b / a if a >= enough else np.nan for a, b in zip(reached, kept)]
    errors = [np.sqrt(share * (1 - share) / max(1, a)) for share, a in zip(shares, reached)]
    ax.errorbar(range(1, widest + 1), shares, errors, fmt=marker, color=PALETTE[colour], label=name, capsize=2)
    first_two[name] = f"{name} {shares[0]:.2f}, then {shares[1]:.2f}"
    drafted = sum(bool(r.draft) for r in made.rounds)
    print(f"{name:14s} reached     ", "  ".join(f"{a:4d}" for a in reached))
    print(f"{'':14s} of all drafts", "  ".join(f"{b / drafted:.2f}" for b in kept))
    assert kept == sorted(kept, reverse=True)  # kept at position i means kept at every one before
    assert min(reached[:2]) >= enough
ax.set(xlabel="position in the draft", ylabel="kept, given that it was reached", ylim=(0, 1.05))
ax.legend(frameon=False)
show(figure, "The share of draft tokens kept at each position, among the rounds that reached it; first and second position: "
             + "; ".join(first_two.values()) + ". A constant alpha would make each line flat, but for its bars.")

# %% [markdown]
# Prompt lookup is the clear case, and it was the one below the curve. Its first guess is often a chance match; once that has
# survived, the copy is most likely in the right place and goes on being kept. What survived so far says something about the
# next token: independence fails.
#
# Mind which rate an engine reports. vLLM and llama.cpp give the share *of all drafts* that were kept at a position, the second
# line of each pair above: it falls from left to right whatever the draft is like, and lower still where drafts are short. The
# picture shows the share of those that *reached* the position. The **mean acceptance length** in vLLM's reports is one plus kept tokens per
# draft; it leaves out the steps that had no draft, so it is not tokens per pass.
#
# And mind the cost of width. The formula lets a pass over $k + 1$ tokens cost what a pass over one costs. Where it costs $w$
# times as much, a round costs $w + ck$ instead of $1 + ck$; chapter 07 measures $w$ on your machine, and chapter 13 pays it.
#
# ## Move it
#
# Each slider moves all three pictures. Try: put $\alpha$ at 0.6 and look for the cost at which no draft pays. Then put
# the cost at 0 and see how much of a $k$ of 16 is wasted.

# %% tags=["nbval-ignore-output"]
acceptance.widget(runs)

# %%
for cost in (0.59, 0.61):
    print(f"alpha 0.6, cost {cost}: best k {acceptance.best_k(0.6, cost)}")
at_16 = acceptance.compute(0.6, 0.0, [4, 16])
wasted = 1 - at_16.rate[1]
print(f"k = 16: {16 * at_16.rate[1]:.1f} of 16 draft tokens kept, {100 * wasted:.0f} in 100 wasted; "
      f"{at_16.tokens[1]:.2f} tokens per pass, and {at_16.tokens[0]:.2f} with k = 4")
assert acceptance.best_k(0.6, 0.59) == 1 and acceptance.best_k(0.6, 0.61) == 0 and 0.90 < wasted < 0.91
assert 0.15 < at_16.tokens[1] - at_16.tokens[0] < 0.25

# %% [markdown]
# No draft pays from a cost of $\alpha$ on: the first token brings $\alpha$, the speedup so far is 1, and if the first does not pay,
# none does. And of 16 draft tokens 14.5 are wasted. At a cost of 0 they take no time, but the twelve after the fourth
# bring only a fifth of a token.
#
# And here are recorded runs of SmolLM2: how much of each draft was kept, and the share kept at each position that was
# reached. **Predict** for which draft the points rise as they did above, then choose it; hollow points rest on few rounds.

# %% tags=["nbval-ignore-output"]
draft_shape.widget()

# %%
recorded = recordings.runs()
for name in dict.fromkeys(draft for _, draft in recorded):
    shape = draft_shape.compute(draft_shape.select(recorded, draft_shape.ALL, name))
    share = shape.kept / shape.reached
    print(f"{name:14s}", ", ".join(f"{a:.2f} of {b}" for a, b in zip(share, shape.reached)))
    assert (share[1] > share[0]) == (name in ("prompt lookup", "n-gram"))
    if name == "model":
        together = shape.kept[:2].sum() / shape.reached[:2].sum()
        error = np.sqrt(together * (1 - together) * (1 / shape.reached[0] + 1 / shape.reached[1]))
        print(f"{'':14s} from the first to the second a fall of {(share[0] - share[1]) / error:.1f} standard errors")
        assert 2 < (share[0] - share[1]) / error < 2.5

# %% [markdown]
# They rise for the two that copy or count: from the first position to the second, prompt lookup doubles its share.
#
# For the model draft they fall. (It is SmolLM2 without its last layers; chapter 13 builds it.) A mixture of easy and hard rounds cannot do
# that, for the survivors are in the easy ones. So either its second guess is harder than its first, which is another way for
# independence to fail, or it is chance: equal shares come out this far apart about once in forty times. The recordings are too
# few to tell.

# %% [markdown]
# ## Your turn: a model draft
#
# A draft model takes a fifth of the target's time per token, and $\alpha = 0.7$. What is the best $k$? And is it worth it:
# is a round with that $k$ faster than no draft at all? Answer the second with True or False.

# %%
my_k = worth_it = None  # your answers
speedups = acceptance.compute(0.7, 0.2, range(longest + 1)).speedup
if my_k is not None and my_k not in range(longest + 1):
    print(f"k: not yet; a whole number from 0 to {longest}")
elif my_k is not None:
    better = speedups.max() - speedups[int(my_k)]
    print("k: " + ("right" if better == 0 else f"not yet; another k has a speedup that is higher by {better:.3f}"))
if worth_it is not None:
    print("worth it: " + ("right" if worth_it == (speedups.max() > 1) else "not yet; compare the best speedup with 1"))

# %% tags=["solution"]
# Solution
for k, speedup in enumerate(speedups[:7]):
    print(f"k {k}: {speedup:.3f}")
my_k = 0
while 0.7 ** (my_k + 1) > 0.2 * speedups[my_k]:  # one more token pays
    my_k += 1
worth_it = bool(speedups[my_k] > 1)
print("best k", my_k, "- worth it:", worth_it)
assert my_k == acceptance.best_k(0.7, 0.2)

# %% [markdown]
# ## Your turn: from a report
#
# An engine reports an acceptance rate of 0.5 at $k = 1$, and another reports 0.5 at $k = 2$. Find the $\alpha$ of each to
# two decimals. Which draft is the better one? The cell computes the rate that your $\alpha$ gives.

# %%
alpha_at_1 = alpha_at_2 = None  # your answers
for k, mine in ((1, alpha_at_1), (2, alpha_at_2)):
    if mine is not None:
        given = acceptance.compute(float(mine), 0.0, [k]).rate[0]
        print(f"k = {k}: alpha {float(mine):.3f} gives a rate of {given:.3f}, " + ("right" if abs(given - 0.5) < 0.006 else "not yet"))

# %% tags=["solution"]
# Solution
alpha_at_1 = 0.5  # one position: the rate is alpha
alpha_at_2 = (np.sqrt(5) - 1) / 2  # (a + a^2) / 2 = 1/2
print(f"{alpha_at_1:.3f} {alpha_at_2:.3f}: the same rate over a longer draft needs a better draft")
for k, found in ((1, alpha_at_1), (2, alpha_at_2)):
    assert abs(acceptance.compute(found, 0.0, [k]).rate[0] - 0.5) < 1e-12

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_the_expected_tokens_are_the_geometric_sum` | the formula, against fractions; 3.36 and 0.59 |
# | `test_a_simulated_round_agrees_with_the_formula` | the formula, against coins |
# | `test_a_slider_redraws_the_picture_with_its_words` | the controls show what `compute` finds |
# | `test_stats_and_one_pass_per_round` | what a run reports: 40 tokens in 8 passes when every draft is right |
#
# ## If you skip this
#
# Nothing of module L8.6 depends on it. The milestone runs the real model. Its table has acceptance rates and seconds: without this chapter, remember that a
# rate is not $\alpha$.
#
# ## Going further
#
# - Leviathan, Kalman, Matias (2023), section 3: the formula and the best draft length.
# - transformers can add two to $k$ after a round that kept all and take one away after any other (its schedule `heuristic`); by default it
#   keeps $k$ and stops a draft where the draft model is unsure. SGLang follows a running mean of
#   the accepted length; TensorRT-LLM gives speculation up where too little is accepted. All of them let the length follow the text.
# - *Speculative Decoding: Performance or Illusion?*, 2026 (arXiv 2601.11580): how far engines are from the formula.
