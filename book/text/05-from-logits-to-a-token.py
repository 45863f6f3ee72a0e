# %% [markdown]
# # 05 From logits to a token
#
# You will build the eleven steps that turn a model's numbers into one token, see what each step does to the same six
# words, and end with a sampler that equals the package's to the last bit.
#
# It looks like a detail. But the chapters on speculation rest on the sentence "the output has exactly the target's
# distribution", and *this* is where that distribution is made: penalties, temperature and filters included. Two programs
# that do the same steps in another order have two different targets.
#
# These are the steps, in the order in which a program takes them. You will meet them in the order in which they are
# easiest to understand; the functions and tests use the numbers.
#
# | | step | | | step |
# |---|---|---|---|---|
# | 1 | a float64 copy of the logits | | 7 | top-p |
# | 2 | repetition penalty | | 8 | min-p |
# | 3 | frequency and presence penalty | | 9 | normalise what is left |
# | 4 | temperature 0: the largest, and stop | | 10 | one uniform |
# | 5 | divide by the temperature | | 11 | the token it falls on |
# | 6 | top-k | | | |

# %%
import math
from collections import Counter
from fractions import Fraction as F

import numpy as np

from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.sample import (
    SamplingParams, apply_penalties, process_logits, request_rng, sample, sampling_distribution, token_logprobs,
)
from tinyllm.num.rng import PCG32
from tinyllm.prob.sampling import sample_categorical


def check(name, answer, right, hint):
    """Say at once whether an answer is right. An answer that is still None says nothing."""
    if answer is not None:
        same = list(answer) == list(right) if isinstance(answer, list | tuple) else answer == right
        print(f"{name}: right." if same else f"{name}: not yet. {hint}")


# %% [markdown]
# ## Six words
#
# After "The soup is", a model gives each token of its vocabulary a number, the **logit**. Any real number will do; a
# larger one means more likely. Ours has six tokens, and logits that were chosen so that you can do every step by hand:
# they are the logarithms of 8, 16, 1, 4, 1 and 2.

# %%
WORDS = ["cold", "hot", "late", "good", "seven", "green"]  # ids 0 to 5
weights = [8, 16, 1, 4, 1, 2]
V = len(WORDS)
logits = np.log(weights)  # float64 [V]
print({word: round(float(value), 2) for word, value in zip(WORDS, logits)})

# %% [markdown]
# **Softmax** makes probabilities of them: exponentiate, and divide by the sum. The exponentials are the weights again,
# and they add up to 32. **Predict** the six probabilities, as fractions.
#
# One detail: subtract the largest logit first. It changes nothing, since a common factor cancels, and it keeps the
# exponentials from overflowing. And one rule: the sum is taken **left to right, in the order of the ids**. Sums of floats
# depend on their order, and a port in another language must be able to get the same bits.

# %%
def softmax(logits):
    """Probabilities, a list of floats; the sum runs left to right."""
    largest = max(logits)
    powers = [math.exp(value - largest) for value in logits]
    total = 0.0
    for power in powers:
        total += power
    return [power / total for power in powers]


p = softmax(logits)
print({word: str(F(value).limit_denominator(1000)) for word, value in zip(WORDS, p)})
assert np.allclose(p, np.array(weights) / 32, rtol=1e-15)
assert max(softmax([1000.0, 999.0])) < 1  # without the subtraction math.exp(1000.0) would raise OverflowError

# %% [markdown]
# ## Temperature
#
# Divide the logits by $T$ before the softmax. The weights turn into $w^{1/T}$: at $T = \tfrac12$ they are squared, at
# $T = 2$ you take the root. **Predict:** "hot" is twice as likely as "cold" at $T = 1$. How many times at $T = \tfrac12$?

# %%
figure, axes = new_figure(columns=3, height=2.5)
order = sorted(range(V), key=lambda i: (-logits[i], i))
at_temperature = {}
for ax, temperature in zip(axes, (0.5, 1.0, 2.0)):
    at_temperature[temperature] = q = softmax(logits / temperature)
    ax.bar(range(V), [q[i] for i in order], color=PALETTE["target"])
    ax.set(title=f"T = {temperature:g}", ylim=(0, 0.85), xticks=range(V))
    ax.set_xticklabels([WORDS[i] for i in order], rotation=60)
show(figure, "Half the temperature piles three quarters of the probability on hot; twice the temperature spreads it out.")
half = [w * w for w in weights]
assert np.allclose(at_temperature[0.5], np.array(half) / sum(half)) and half[1] / half[0] == 4
assert 0.74 < at_temperature[0.5][1] < 0.76

# %% [markdown]
# Four times. A low temperature makes a favourite more of a favourite.
#
# What about $T = 0$? You cannot divide by it, but you can look where things go. **Predict** what these two rows of
# probabilities go to as $T$ falls: `[2, 1, 1]` and `[2, 2, 1]` as logits.

# %%
for row in ([2.0, 1.0, 1.0], [2.0, 2.0, 1.0]):
    for temperature in (1.0, 0.3, 0.05):
        print(row, f"T = {temperature:<4}", [round(v, 3) for v in softmax(np.array(row) / temperature)])
greedy = SamplingParams(temperature=0)
print("temperature 0:", sampling_distribution([2.0, 1.0, 1.0], greedy), sampling_distribution([2.0, 2.0, 1.0], greedy))
assert sampling_distribution([2.0, 2.0, 1.0], greedy).tolist() == [1, 0, 0]

# %% [markdown]
# The first goes to a certain 0. The second goes to a coin toss between 0 and 1, but **temperature 0 is defined as
# greedy**: the largest logit, ties to the lowest id, and no draw. A tie-break that everybody agrees on is worth more than
# a fair coin: it is what makes "greedy output" one output.
#
# ## Three filters
#
# A vocabulary has tens of thousands of tokens, and most of them are nonsense here. Each is unlikely, but together they
# are not: sample long enough and "seven" comes. The filters cut off that tail. They all walk down the same ranking,
# **logit descending, ties by id ascending**:
#
# - **top-k** keeps the first $k$;
# - **top-p** adds up probabilities along the ranking and keeps up to and including the first token whose running sum
#   reaches $p$;
# - **min-p** keeps what has at least a given share of the largest probability.
#
# What survives is normalised again. In the ranking the probabilities are $\tfrac{16}{32}, \tfrac{8}{32}, \tfrac{4}{32},
# \tfrac{2}{32}, \tfrac{1}{32}, \tfrac{1}{32}$. **Predict** who survives top-k 3, top-p 0.8, min-p 0.1; and top-k 5, where
# "late" and "seven" tie for the last place.

# %%
def survivors(**filters):
    """The words that can still come out, best first."""
    left = process_logits(logits, SamplingParams(**filters))  # [V], -inf for what was filtered out
    return [WORDS[i] for i in order if left[i] > -math.inf]


for filters in ({"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 5}):
    print(filters, survivors(**filters))
assert survivors(top_k=3) == survivors(top_p=0.8) == ["hot", "cold", "good"]
assert survivors(min_p=0.1) == ["hot", "cold", "good", "green"]
assert survivors(top_k=5)[-1] == "late"

# %% [markdown]
# Top-p: the sums are 0.5, 0.75, 0.875, and the third is the first to reach 0.8. The token that crosses the line stays,
# or top-p 0.4 would keep nothing. Min-p: a tenth of 0.5 is 0.05, and green has 0.0625. Of "late" and "seven" the lower id
# wins, 2 against 4.
#
# So far they look alike. They part where the model is less sure. Below, the second row has the same words with weights
# 5, 6, 3, 4, 2 and 3. **Predict** for each filter whether it keeps more words there, or as many.

# %%
def top_k(logits, ids, k):
    """The first k of `ids`, which are in the order of the ranking; 0 keeps all."""
    return ids[:k] if k > 0 else ids


def top_p(logits, ids, p):
    """The ids up to and including the first running sum >= p; 1 keeps all."""
    if p == 1:
        return ids
    probability = probabilities(logits, ids)
    running = 0.0
    for n, i in enumerate(ids, start=1):
        running += probability[i]
        if running >= p:
            return ids[:n]
    return ids  # rounding can leave the whole sum a hair below p


def min_p(logits, ids, share):
    """The ids with at least `share` of the largest probability."""
    probability = probabilities(logits, ids)
    return [i for i in ids if probability[i] >= share * max(probability.values())]


def ranking(logits):
    """Ids, logit descending, ties by id ascending; a logit of -inf never takes part."""
    return sorted((i for i in range(len(logits)) if logits[i] > -math.inf), key=lambda i: (-logits[i], i))


def probabilities(logits, ids):
    """{id: probability} of a softmax over `ids` alone, summed in the order of the ids."""
    ascending = sorted(ids)
    return dict(zip(ascending, softmax([logits[i] for i in ascending])))


# %%
flat = np.log([5.0, 6, 3, 4, 2, 3])
figure, axes = new_figure(columns=3, rows=2, height=4.4)
kept_count = {}
for row, (name, values) in enumerate((("sure", logits), ("unsure", flat))):
    ids, probability = ranking(values), probabilities(values, range(V))
    for column, (title, kept) in enumerate((
        ("top-k 3", top_k(values, ids, 3)), ("top-p 0.8", top_p(values, ids, 0.8)), ("min-p 0.1", min_p(values, ids, 0.1)),
    )):
        kept_count[name, title] = len(kept)
        ax = axes[3 * row + column]
        ax.bar(range(V), [probability[i] for i in ids], color=[PALETTE["kept" if i in kept else "rejected"] for i in ids])
        ax.set(title=f"{title}: {len(kept)} kept", ylim=(0, 0.55), xticks=range(V))
        ax.set_xticklabels([WORDS[i] for i in ids], rotation=60)
        if column == 0:
            ax.set_ylabel(f"{name} model")
show(figure, "Kept words in green, dropped ones in orange-red. From the sure to the unsure model top-k keeps 3 and 3, top-p 3 "
             "and 5, min-p 4 and 6.")
assert [kept_count[name, title] for title in ("top-k 3", "top-p 0.8", "min-p 0.1") for name in ("sure", "unsure")] == [
    3, 3, 3, 5, 4, 6]

# %% [markdown]
# Top-k does not look at how sure the model is; the two others do. Min-p asks each token "are you anywhere near the
# best one?"; top-p asks "is there enough without you?".

# %% [markdown]
# ## Your turn: who survives?
#
# Temperature comes **before** the filters. At $T = 2$ the weights of our six words are 4, 2.83, 2, 1.41, 1 and 1 along the
# ranking, and add up to 12.24. Who survives top-p 0.8 now? Answer with a list of words, the likeliest first.

# %%
my_survivors = None  # your answer, a list of words

check("survivors", my_survivors, survivors(temperature=2.0, top_p=0.8),
      "Add 4, 2.83, 2, ... until you have 0.8 of 12.24, which is 9.8.")

# %% tags=["solution"]
# Solution
roots = [math.sqrt(weights[i]) for i in order]
sums = np.cumsum(roots) / sum(roots)
print([round(float(s), 3) for s in sums])
my_survivors = [WORDS[i] for i in order][: int(np.argmax(sums >= 0.8)) + 1]
print(my_survivors)
assert my_survivors == survivors(temperature=2.0, top_p=0.8) == ["hot", "cold", "good", "green"]

# %% [markdown]
# ## The order is part of the definition
#
# Each filter works on what the one before it left, normalised anew. **Predict:** top-p 0.8 alone kept three words. With
# top-k 3 *before* it, which keeps the same three, how many come through both?

# %%
print("top-p 0.8:                ", survivors(top_p=0.8))
print("top-k 3, then top-p 0.8:  ", survivors(top_k=3, top_p=0.8))
three = probabilities(logits, top_k(logits, ranking(logits), 3))
print("after top-k 3:", {WORDS[i]: round(v, 3) for i, v in three.items()})
assert survivors(top_k=3, top_p=0.8) == ["hot", "cold"]

# %% [markdown]
# Two. After top-k the three hold all of the probability, $\tfrac{16}{28}, \tfrac{8}{28}, \tfrac{4}{28}$, and the first two
# already make 0.86. The other order would keep three. Neither is wrong; they are different samplers. Ours is: top-k,
# top-p, min-p, each after a softmax over what is left.
#
# ## Penalties
#
# They come first of all, before temperature, and make a token less likely because it was already used.
#
# - The **repetition penalty** $r$ weakens each id that occurs in the prompt or in the output, once: a positive logit is
#   divided by $r$, any other is multiplied by it.
# - The **frequency penalty** is subtracted once for each time the id occurs in the output.
# - The **presence penalty** is subtracted once if it occurs in the output at all.
#
# **Predict:** the prompt held "good", the output so far is "hot cold hot". Which of the six logits does each penalty
# change?

# %%
prompt, history = [WORDS.index("good")], [WORDS.index(w) for w in ("hot", "cold", "hot")]
kinds = {"repetition 1.5": SamplingParams(repetition_penalty=1.5), "frequency 0.5": SamplingParams(frequency_penalty=0.5),
         "presence 0.5": SamplingParams(presence_penalty=0.5)}
figure, axes = new_figure(columns=3, height=2.5)
changed = {}
for ax, (title, params) in zip(axes, kinds.items()):
    after = apply_penalties(logits, params, history, prompt)
    changed[title] = [WORDS[i] for i in range(V) if after[i] != logits[i]]
    ax.bar(range(V), [logits[i] for i in order], color=PALETTE["rejected"])
    ax.bar(range(V), [after[i] for i in order], color=PALETTE["target"])
    ax.set(title=title, xticks=range(V))
    ax.set_xticklabels([WORDS[i] for i in order], rotation=60)
    print(f"{title}: changes", ", ".join(changed[title]))
axes[0].set_ylabel("logit")
show(figure, "Logits after each penalty; what was taken off is orange-red. Repetition takes from hot, cold and good; frequency "
             "twice as much from hot as from cold; presence the same from both.")
assert changed == {"repetition 1.5": ["cold", "hot", "good"], "frequency 0.5": ["cold", "hot"], "presence 0.5": ["cold", "hot"]}

# %% [markdown]
# Only the repetition penalty looks at the prompt. And it has a quirk. Softmax does not care if you add the same number to
# every logit. **Predict:** does the repetition penalty? Here are the same probabilities twice, once with all logits
# lower by 4, and "hot" as history.

# %%
repeat = SamplingParams(repetition_penalty=1.5)
hot = WORDS.index("hot")
shifted = {}
for name, values in (("as they are", logits), ("all lower by 4", logits - 4)):
    shifted[name] = sampling_distribution(values, repeat, [hot])[hot]
    print(f"{name:15}: hot had {softmax(values)[hot]:.3f}, has {shifted[name]:.3f} after the penalty")
assert shifted["all lower by 4"] > 1.1 * shifted["as they are"]

# %% [markdown]
# It does: two models with the same probabilities can react differently. Frequency and presence only subtract, so they
# have no such quirk. (Why a rule for signs at all? Dividing a negative logit would make the token *more* likely.)

# %%
def penalise(logits, params, history, prompt):
    """Steps 1 to 3: a copy of the logits with the penalties applied, a list of floats."""
    out = [float(value) for value in logits]
    for i in {*prompt, *history}:
        out[i] = out[i] / params.repetition_penalty if out[i] > 0 else out[i] * params.repetition_penalty
    for i, count in Counter(history).items():
        out[i] = out[i] - params.frequency_penalty * count - params.presence_penalty
    return out


# %% [markdown]
# ## Your turn: a penalty that is just enough
#
# Greedy decoding wrote "hot hot", and you would like the next token to be another one. The logit of "hot" is
# $\ln 16$, that of "cold" $\ln 8$. What is the smallest frequency penalty, to two decimals, that does it?

# %%
my_frequency = None  # your answer, a number with two decimals


def next_after_hot_hot(frequency):
    """What greedy decoding picks after "hot hot" with this frequency penalty."""
    return WORDS[sample(logits, SamplingParams(temperature=0, frequency_penalty=frequency), [hot, hot], None)[0]]


if my_frequency is not None and my_frequency != round(my_frequency, 2):
    print("two decimals, please")
elif my_frequency is not None:
    enough, too_much = next_after_hot_hot(my_frequency) != "hot", next_after_hot_hot(my_frequency - 0.01) != "hot"
    print("right." if enough and not too_much else "not yet; " + ("a smaller one does it too" if enough else "hot again"))

# %% tags=["solution"]
# Solution
my_frequency = math.ceil(100 * math.log(2) / 2) / 100  # taken off twice, it must reach ln 16 - ln 8 = ln 2; "cold" wins a tie
print(my_frequency, next_after_hot_hot(my_frequency))
assert next_after_hot_hot(my_frequency) == "cold" and next_after_hot_hot(my_frequency - 0.01) == "hot"

# %% [markdown]
# ## One uniform, one token
#
# What is left is a distribution, and the draw takes **exactly one** uniform $u$ in $[0, 1)$ from the request's own
# generator. Lay the probabilities end to end, *in the order of the ids*, and take the token that $u$ falls on. Chapter 01
# calls this the inverse CDF.
#
# **Predict:** after top-k 3, which word does $u = 0.9$ give?

# %%
q = sampling_distribution(logits, SamplingParams(top_k=3))
figure, (ax,) = new_figure(height=1.7)
left, u = 0.0, 0.9
for i, colour, ink in zip(np.flatnonzero(q), ("target", "draft", "kept"), ("white", "black", "white")):
    ax.barh(0, q[i], left=left, color=PALETTE[colour], edgecolor="white")
    ax.text(left + q[i] / 2, 0, f"{WORDS[i]}\n{F(float(q[i])).limit_denominator(100)}", ha="center", va="center", color=ink)
    left += q[i]
ax.annotate("u = 0.9", (u, -0.4), (u, -1.0), ha="center", arrowprops={"arrowstyle": "->"})
ax.set(xlim=(0, 1), ylim=(-1.1, 0.5), yticks=[])
ax.spines["left"].set_visible(False)
show(figure, "From 0 to 1 in the order of the ids: cold 2/7, hot 4/7, good 1/7. The uniform 0.9 falls on good.")
assert WORDS[sample_categorical(q, u)] == "good"

# %% [markdown]
# "good", the least likely of the three, because the order is by id and not by rank. Nothing is lost: a token gets as much
# of the line as it has probability. To see that this is exact, let $u$ run over the midpoints of 32 equal pieces. Every
# border of our six words is a multiple of $\tfrac1{32}$, so the counts are the probabilities.

# %%
drawn = Counter(WORDS[sample_categorical(softmax(logits), (j + 0.5) / 32)] for j in range(32))
print(dict(drawn))
assert drawn == Counter(dict(zip(WORDS, weights)))

# %% [markdown]
# ## Your turn: aim
#
# With min-p 0.2 three words are left again. Which uniforms give "hot"? Answer with the two ends of the interval, as
# fractions.

# %%
my_interval = None  # your answer, such as (F(0), F(1, 2))

left_over = [weights[i] if WORDS[i] in survivors(min_p=0.2) else 0 for i in range(V)]
hot_from = F(sum(left_over[:hot]), sum(left_over))
check("interval", my_interval, (hot_from, hot_from + F(left_over[hot], sum(left_over))),
      "Who has at least a fifth of 1/2? Lay the survivors end to end in the order of the ids: cold comes before hot.")

# %% tags=["solution"]
# Solution
my_interval = (F(8, 28), F(24, 28))  # cold 8, hot 16, good 4
print("from", my_interval[0], "to", my_interval[1])
inside = SamplingParams(min_p=0.2)
assert my_interval == (hot_from, hot_from + F(left_over[hot], sum(left_over)))
for u, word in ((0.2857, "cold"), (0.2858, "hot"), (0.8571, "hot"), (0.8572, "good")):
    assert WORDS[sample_categorical(sampling_distribution(logits, inside), u)] == word

# %% [markdown]
# ## All steps in one picture
#
# A request goes through everything: "hot" was written before, $T = 0.8$, then the three filters, then $u$. Each row is
# what the step leaves, as probabilities.

# %%
request = SamplingParams(temperature=0.8, top_k=5, top_p=0.95, min_p=0.15, frequency_penalty=0.5)
wrote = [hot]
penalised = penalise(logits, request, wrote, [])
scaled = [value / request.temperature for value in penalised]
ids = ranking(scaled)
stages = [("the model", list(logits), range(V)), ("penalties", penalised, range(V)), ("temperature 0.8", scaled, range(V))]
for title, keep, knob in (("top-k 5", top_k, request.top_k), ("top-p 0.95", top_p, request.top_p),
                          ("min-p 0.15", min_p, request.min_p)):
    ids = keep(scaled, ids, knob)
    stages.append((title, scaled, ids))

figure, (ax,) = new_figure(height=3.2)
alive = []
for y, (title, values, ids) in enumerate(stages):
    share = probabilities(values, ids)
    alive.append(len(share))
    for i in range(V):
        strength = share.get(i, 0.0)
        ax.barh(y, 0.96, left=i, height=0.9, color=PALETTE["kept"] if i in share else PALETTE["rejected"],
                alpha=0.15 + 0.85 * strength if i in share else 0.25)
        ax.text(i + 0.48, y, f"{strength:.2f}" if i in share else "out", ha="center", va="center", fontsize=9)
ax.set(xticks=np.arange(V) + 0.48, xticklabels=WORDS, yticks=range(len(stages)), yticklabels=[title for title, *_ in stages])
ax.invert_yaxis()
ax.tick_params(length=0)
ax.spines[["left", "bottom"]].set_visible(False)
show(figure, "One request, step by step: the penalty takes from hot, the temperature sharpens, top-k drops seven, top-p late, "
             "min-p green. Three words are left for the draw.")
assert alive == [6, 6, 6, 5, 4, 3]
assert np.flatnonzero(sampling_distribution(logits, request, wrote)).tolist() == sorted(ids)

# %% [markdown]
# And the reported **log-probability** of a token? It is taken after the penalties and before everything else, so it
# tells what the model thought, whatever the temperature and the filters are. A filtered-out word has one too.

# %%
reported = token_logprobs(logits, request, wrote)
warm = token_logprobs(logits, SamplingParams(temperature=2.0, frequency_penalty=0.5), wrote)
print({word: round(float(value), 2) for word, value in zip(WORDS, reported)})
assert np.array_equal(reported, warm) and np.isclose(np.exp(reported).sum(), 1)

# %% [markdown]
# ## The same as the package
#
# You have all the pieces. Put together they are `tinyllm.infer.sample`, which adds checks, and shortcuts so that it is
# fast at 49,152 tokens. Shortcuts are where bits get lost, so compare with `==` and not "about": random logits with many
# ties, some of them $-\infty$, random parameters, and after each draw both generators must stand at the same place.

# %%
def my_distribution(logits, params, history=(), prompt=()):
    """Steps 1 to 9: the distribution that the next token is drawn from, a list of V floats."""
    penalised = penalise(logits, params, history, prompt)
    if params.temperature == 0:
        best = penalised.index(max(penalised))  # the first of equals
        return [float(i == best) for i in range(len(penalised))]
    scaled = [value / params.temperature for value in penalised]
    ids = top_k(scaled, ranking(scaled), params.top_k)
    ids = top_p(scaled, ids, params.top_p)
    ids = min_p(scaled, ids, params.min_p)
    share = probabilities(scaled, ids)
    return [share.get(i, 0.0) for i in range(len(scaled))]


def my_sample(logits, params, history, rng, prompt=()):
    """Steps 1 to 11: one token; at temperature 0 nothing is drawn."""
    q = my_distribution(logits, params, history, prompt)
    u = 0.0 if params.temperature == 0 else rng.uniform()
    running = 0.0
    for i, share in enumerate(q):
        running += share
        if u < running:
            return i
    return max(i for i, share in enumerate(q) if share > 0)  # rounding left the whole sum at or below u


numbers = PCG32(5).substream("shuffle")
cases, filtered, ties = 500, 0, 0
for seed in range(cases):
    size = 2 + numbers.below(40)
    random_logits = [numbers.below(12) / 2 - 3 if numbers.below(9) else -math.inf for _ in range(size)]
    random_logits[numbers.below(size)] = 1.5  # not all of them -inf
    params = SamplingParams(
        temperature=numbers.below(4) / 2, top_k=numbers.below(size + 2), top_p=1 - numbers.below(6) / 10,
        min_p=numbers.below(4) / 10, repetition_penalty=1 + numbers.below(4) / 4,
        presence_penalty=numbers.below(3) / 4, frequency_penalty=numbers.below(3) / 4 - 0.25,
    )
    history = [numbers.below(size) for _ in range(numbers.below(6))]
    prompt = [numbers.below(size) for _ in range(numbers.below(4))]
    mine, theirs = my_distribution(random_logits, params, history, prompt), sampling_distribution(
        random_logits, params, history, prompt)
    assert np.array_equal(mine, theirs), params
    my_rng, rng = request_rng(seed), request_rng(seed)
    assert my_sample(random_logits, params, history, my_rng, prompt) == sample(random_logits, params, history, rng, prompt)[0]
    assert my_rng.state() == rng.state()
    filtered += 0 < np.count_nonzero(theirs) < np.count_nonzero(np.isfinite(random_logits)) and params.temperature > 0
    ties += len(set(random_logits)) < size
print(cases, "random requests: the same bits, the same token, the same number of draws")
print(filtered, "of them were filtered,", ties, "had equal logits")
assert filtered > 200 and ties > 400

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_step_2_repetition_weakens_each_distinct_id_once`, `test_step_3_presence_and_frequency_count_the_history_only` | the penalties |
# | `test_step_4_temperature_0_takes_the_largest_and_draws_nothing` | greedy, ties, no uniform |
# | `test_step_6_top_k_keeps_the_k_largest` and the two after it | each filter at its edge |
# | `test_top_k_comes_before_top_p`, `test_temperature_comes_before_top_p`, `test_top_p_comes_before_min_p` | the order |
# | `test_step_10_takes_exactly_one_uniform`, `test_step_11_is_the_inverse_cdf_in_id_order` | the draw |
# | `test_reported_logprobs_are_after_penalties_and_before_temperature` | what is reported |
# | `test_bits_are_those_of_the_plain_loop_at_a_real_vocabulary` | the fast version against the plain one, at 49,152 tokens |
#
# ## If you skip this
#
# Later chapters call `sampling_distribution` for "the target's distribution" and `sample` for one draw. Remember two
# things: at temperature 0 the distribution is certain and nothing is drawn, and otherwise a token takes one uniform.
# `ol start L8.1` hands you the module to build.
#
# ## Going further
#
# - Holtzman et al., *The Curious Case of Neural Text Degeneration*, ICLR 2020: why the tail is cut, and top-p.
# - Fan, Lewis, Dauphin, *Hierarchical Neural Story Generation*, ACL 2018: top-k.
# - Nguyen et al., *Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs*, 2024 (arXiv 2407.01082).
# - Keskar et al., *CTRL*, 2019 (arXiv 1909.05858), section 4.1: the repetition penalty; its quirk is theirs too.
