# %% [markdown]
# # 02 Distances between distributions
#
# You will measure in two ways how far a draft's distribution is from the target's, and prove that one of the two,
# total variation, says exactly how often a draft token can be kept.
#
# Two models look at the same sentence, *the cat sat on the ...*, and each has a distribution over the next word: the
# target $p$, which you want text from, and the draft $q$, which is cheap. How different are they? It depends on
# what you ask. This chapter asks first how open each distribution is in itself, then what it costs to believe the wrong one,
# and ends at the question that decides how fast speculation runs: how much the two share.

# %%
import math
from fractions import Fraction as F
from itertools import product

import numpy as np

from tinyllm.explore.figure import PALETTE, new_figure, show

WORDS = ["mat", "floor", "sofa", "roof"]
p = [F(1, 2), F(1, 4), F(1, 8), F(1, 8)]  # the target
q = [F(1, 4), F(1, 4), F(1, 4), F(1, 4)]  # the draft
assert sum(p) == sum(q) == 1

# %% [markdown]
# ## How surprised are you?
#
# Say that the word of probability $p(v)$ surprises you by $\log \tfrac{1}{p(v)}$: certainty by 0, and two words in a row
# by the sum of their surprises, because their probabilities multiply. The logarithm is the natural one, and its unit the
# **nat**; one bit is $\ln 2 \approx 0.69$ nats.
#
# The **entropy** of $p$ is the surprise you expect on average:
#
# $$H(p) = \sum_v p(v) \log \frac{1}{p(v)} = - \sum_v p(v) \log p(v).$$
#
# **Predict:** which has the larger entropy, the target $p$ or the draft $q$?

# %%
def my_entropy(p):
    return sum(float(a) * math.log(1 / a) for a in p if a > 0)


for name, dist in (("target p", p), ("draft q", q), ("certain", [F(1), F(0), F(0), F(0)])):
    print(f"{name}: {my_entropy(dist):.4f} nats = {my_entropy(dist) / math.log(2):.2f} bits, like "
          f"{math.exp(my_entropy(dist)):.2f} equally likely words")
assert math.isclose(my_entropy(p), 1.75 * math.log(2)) and math.isclose(my_entropy(q), 2 * math.log(2))

# %% [markdown]
# The draft's: it knows less, so more is open. The last column, $e^{H}$, is called the **perplexity**: the number of
# equally likely words that would leave as much open.
#
# A word of probability 0 needs care: `0 * log(0)` is not a number for a computer. It counts as 0, for two good reasons. The
# word never comes, so it surprises nobody; and $a \log a \to 0$ as $a \to 0$. The code leaves such words out instead of
# computing a NaN and sweeping it up.
#
# ## The price of believing the wrong model
#
# The words come from $p$, but you believe $q$. Your average surprise is now the **cross entropy**
# $H(p, q) = \sum_v p(v) \log \frac{1}{q(v)}$, and what it exceeds $H(p)$ by is the price of your wrong belief, the
# **Kullback-Leibler divergence**:
#
# $$\mathrm{KL}(p \,\|\, q) = H(p, q) - H(p) = \sum_v p(v) \log \frac{p(v)}{q(v)}.$$
#
# (Words with $p(v) = 0$ add nothing; a word with $p(v) > 0$ and $q(v) = 0$ makes the sum infinite.) **Predict:** can the price be
# negative? Is it the same in both directions?

# %%
def my_kl(p, q):
    total = 0.0
    for a, b in zip(p, q):
        if a > 0:
            if b == 0:
                return math.inf
            total += float(a) * math.log(a / b)
    return total


print(f"KL(p, q) = {my_kl(p, q):.4f}, KL(q, p) = {my_kl(q, p):.4f}, KL(p, p) = {my_kl(p, p):.4f}")
assert math.isclose(my_kl(p, q), 0.25 * math.log(2)) and math.isclose(my_kl(q, p), 0.25 * math.log(2))

# %% [markdown]
# Negative: no. It is 0 for $p$ and $p$, and below you prove that it is never less. Both directions: equal here, but that is a
# coincidence of this pair. If you answered *not the same*, you were right. Try two others.

# %%
for a, b in (([F(1, 2), F(1, 2)], [F(1, 4), F(3, 4)]), ([F(9, 10), F(1, 10)], [F(1), F(0)])):
    print("a", [str(v) for v in a], "b", [str(v) for v in b], f"KL(a, b) {my_kl(a, b):.4f}, KL(b, a) {my_kl(b, a):.4f}")
assert my_kl([F(9, 10), F(1, 10)], [F(1), F(0)]) == math.inf

# %% [markdown]
# In general the two directions differ, and one can be infinite while the other is small. So KL is a divergence and not a
# distance. In this course the order is always target first: words come from $p$, beliefs are $q$.
#
# ### It is never negative
#
# Use $\log t \le t - 1$, with equality only at $t = 1$ (the tangent of the logarithm). Sum over the words with $p(v) > 0$,
# and suppose $q(v) > 0$ there, since otherwise KL is infinite:
#
# $$-\mathrm{KL}(p \,\|\, q) = \sum_{p(v) > 0} p(v) \log \frac{q(v)}{p(v)} \le \sum_{p(v) > 0} \bigl( q(v) - p(v) \bigr) \le 1 - 1 = 0.$$
#
# Equality needs $q(v) = p(v)$ wherever $p(v) > 0$, and then nothing is left for $q$ elsewhere: $\mathrm{KL} = 0$ only if
# $p = q$. With $q$ uniform over $n$ words the same line says $H(p) \le \log n$, because $H(p, q) = \log n$ then.
#
# ### Infinity is not the end
#
# Look at the last line of the output above. The target says 9/10 and 1/10. The draft *always* proposes the first word,
# as a copying draft does, and $\mathrm{KL} = \infty$, the worst there is. **Predict:** is this a bad draft?

# %%
target, copying = [F(9, 10), F(1, 10)], [F(1), F(0)]
agree = sum(min(a, b) for a, b in zip(target, copying))
print("what both give to the same words:", agree)
assert agree == F(9, 10)

# %% [markdown]
# It is an excellent one: nine times out of ten the target would have said the same. KL asks what happens to somebody who
# *bets* on $q$, and who is ruined by one word that $q$ called impossible. A verifier does not bet. It can replace what does not
# fit. So there is another question to ask.
#
# ## How much do they share?
#
# Draw both as bars over the same words. What they share at a word is the lower of the two bars. Together that is
# the **overlap**
#
# $$\alpha = \sum_v \min(p(v), q(v)).$$
#
# And the **total variation** is half of the total difference in height:
#
# $$\mathrm{TV}(p, q) = \frac12 \sum_v \lvert p(v) - q(v) \rvert.$$

# %%
def my_tv(p, q):
    return sum(abs(a - b) for a, b in zip(p, q)) / 2


def overlap(p, q):
    return sum(min(a, b) for a, b in zip(p, q))


figure, (ax,) = new_figure(height=3.0)
ids = np.arange(len(WORDS))
shared = [float(min(a, b)) for a, b in zip(p, q)]
ax.bar(ids, shared, 0.6, color=PALETTE["kept"], label="shared, min(p, q)")
above = [float(a - b) for a, b in zip(p, q)]
ax.bar(ids, np.maximum(above, 0), 0.6, bottom=shared, color=PALETTE["target"],
       label="only the target's, p above q")
ax.bar(ids, np.maximum(np.negative(above), 0), 0.6, bottom=shared, color=PALETTE["draft"],
       hatch="//", edgecolor="white", label="only the draft's, q above p")
ax.set(xticks=ids, xticklabels=WORDS, ylabel="probability", ylim=(0, 0.6))
ax.legend(frameon=False)
show(figure, "The target's bars are 1/2, 1/4, 1/8, 1/8, the draft's all 1/4. Shared: 1/4, 1/4, 1/8, 1/8, "
             "together 3/4. On mat the target has 1/4 more; on sofa and roof the draft has 1/8 more each.")
assert overlap(p, q) == F(3, 4)

# %% [markdown]
# **Predict** from the picture: how large is the blue area, how large the hatched one, and how large is TV?

# %%
only_target = sum(max(F(0), a - b) for a, b in zip(p, q))
only_draft = sum(max(F(0), b - a) for a, b in zip(p, q))
print("blue:", only_target, " hatched:", only_draft, " TV:", my_tv(p, q), " overlap:", overlap(p, q))
assert only_target == only_draft == my_tv(p, q) == 1 - overlap(p, q) == F(1, 4)

# %% [markdown]
# All three are $\tfrac14$, and $\tfrac14$ is what the overlap lacks to 1. That is no accident.
#
# ### The theorem: alpha = 1 - TV
#
# For two numbers, $\min(a, b) = \tfrac12 (a + b - \lvert a - b \rvert)$: half the sum, less half the distance between them. Sum over all
# words:
#
# $$\alpha = \sum_v \min(p(v), q(v)) = \tfrac12 \Bigl( 1 + 1 - \sum_v \lvert p(v) - q(v) \rvert \Bigr) = 1 - \mathrm{TV}(p, q).$$
#
# And $\max(0, a - b) = a - \min(a, b)$, so the blue area is $1 - \alpha$; with the roles exchanged, so is the hatched
# one. Where the draft has too much, the target has, elsewhere, exactly as much too little. Keep this sentence: chapter 03
# turns it into an algorithm.
#
# A proof deserves a check that could fail. Take *every* pair of distributions over three words in multiples of $\tfrac16$.

# %%
def every(n, parts):
    """Every distribution over n words in multiples of 1/parts."""
    counts = product(range(parts + 1), repeat=n)
    return [[F(c, parts) for c in one] for one in counts if sum(one) == parts]


grid = every(3, 6)
for a, b in product(grid, grid):
    blue = sum(max(F(0), x - y) for x, y in zip(a, b))
    hatched = sum(max(F(0), y - x) for x, y in zip(a, b))
    assert blue == hatched == my_tv(a, b) == 1 - overlap(a, b)
print(len(grid) ** 2, "pairs, all equal as fractions")
assert len(grid) == 28

# %% [markdown]
# TV is a distance in the full sense: 0 only between equals, the same both ways, and never longer than a detour (sum
# $\lvert p - r \rvert \le \lvert p - q \rvert + \lvert q - r \rvert$ over the words). It runs from 0 to 1.
#
# ### What it means: the best bet
#
# Somebody shows you one word, drawn from $p$ or from $q$, and you may pick a set $A$ of words beforehand. How far apart can the
# probabilities of $A$ be under the two? **Predict** the best set for *mat, floor, sofa, roof*.

# %%
gaps = {}
for members in product([False, True], repeat=4):
    chosen = tuple(word for word, inside in zip(WORDS, members) if inside)
    gaps[chosen] = sum(a - b for a, b, inside in zip(p, q, members) if inside)
best = max(gaps, key=gaps.get)
print("best set:", best, "- gap", gaps[best])
assert gaps[best] == max(abs(gap) for gap in gaps.values()) == my_tv(p, q)

# %% [markdown]
# The best set holds the words with $p > q$, and the gap is TV again (*floor*, with $p = q$, makes no difference). The
# proof is one line. For any $A$,
#
# $$P(A) - Q(A) = \sum_{v \in A} \bigl( p(v) - q(v) \bigr) \le \sum_v \max(0, p(v) - q(v)) = \mathrm{TV}(p, q),$$
#
# with equality for $A = \{v : p(v) > q(v)\}$; and $Q(A) - P(A)$ is the same gap for the words outside $A$. So if TV is
# 0.01, no event whatever, however cleverly chosen, is more than one percentage point likelier under one than under the other.
#
# And here is the bet. A fair coin decides between $p$ and $q$, you see the word and say which it was. Say $p$ when the word lies in $A$:
# you are right with probability $\tfrac12 P(A) + \tfrac12 (1 - Q(A)) = \tfrac12 (1 + \mathrm{TV})$. No other rule is better, for
# every rule is a set of words at which you say $p$. **Predict** the number for our pair.

# %%
says_p = [a > b for a, b in zip(p, q)]
right = sum(F(1, 2) * (a if say else b) for a, b, say in zip(p, q, says_p))
print("right with probability", right, "- by tossing a coin yourself 1/2")
assert right == F(1, 2) * (1 + my_tv(p, q)) == F(5, 8)

# %% [markdown]
#
# ### What it means: the best coincidence
#
# Now the question that speculation asks. The draft draws $X \sim q$. You want to hand out $Y \sim p$, and you may use $X$ in any
# way you like, so long as $Y$ has exactly the distribution $p$. How often can $Y$ be $X$?
#
# **Predict** for the two simplest schemes: (1) ignore $X$ and draw $Y$ from $p$ on your own; (2) the best there is.

# %%
independent = sum(a * b for a, b in zip(p, q))
print("drawn independently, they agree with probability", independent)
print("the best scheme agrees with probability", overlap(p, q))
assert independent == F(1, 4) and all(a * b <= min(a, b) for a, b in product(p, q))

# %% [markdown]
# No scheme whatever can beat $\alpha$. Whatever connects $X$ and $Y$, the event $X = Y = v$ is a part of $X = v$, which has
# probability $q(v)$, and a part of $Y = v$, which has probability $p(v)$. So it has at most the smaller of the two, and
#
# $$P(X = Y) = \sum_v P(X = Y = v) \le \sum_v \min(p(v), q(v)) = \alpha = 1 - \mathrm{TV}(p, q).$$
#
# This is the **coupling inequality**. It is a bound that no algorithm can break; chapter 03 builds the one that reaches it.
# So $\alpha$ is not a property of a clever rule. It belongs to the pair: how often this draft *can* be kept by this target.
#
# ## Move it
#
# Take hold of $p$ and $q$ yourself; they start as a pair much like ours, in hundredths. **Predict**, then try: how far can you
# move weight about in $q$ without changing $\alpha$? Can the overlap be 0 while every word of the draft has weight?
#
# (The explorable calls the words a to d. A slider sets a *weight*, and the four weights are scaled to sum to 1. So one slider
# changes all four probabilities; to move weight between two words, lower one slider and raise another by as much.)

# %% tags=["nbval-ignore-output"]
from tinyllm.explore import overlap as explorable

explorable.widget([0.5, 0.3, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25])

# %% [markdown]
# Weight that moves between two words of $q$ changes nothing so long as $q$ stays above $p$ at both, or stays below $p$ at both: the
# overlap does not care *where* the draft is wrong. And no, it cannot be 0 then: the target says some word, and the draft gives
# that word weight.
#
# ## KL bounds TV
#
# Draft models are usually trained to bring KL down, since it has a smooth gradient. Does a small KL promise a large
# overlap? Yes, in two ways:
#
# $$\mathrm{TV} \le \sqrt{\tfrac12 \mathrm{KL}} \quad \text{(Pinsker)}, \qquad \mathrm{TV} \le \sqrt{1 - e^{-\mathrm{KL}}} \quad \text{(Bretagnolle and Huber)}.$$
#
# The other way round there is no promise: you saw a TV of $\tfrac1{10}$ with a KL of infinity. **Predict:** for which KL
# does Pinsker say nothing any more?

# %%
from tinyllm.num.rng import PCG32

rng = PCG32(2).substream("shuffle")
points = []
for _ in range(1500):
    n = 2 + rng.below(4)
    a, b = (rng.uniforms(n) ** (1 + rng.below(6)) for _ in range(2))
    a, b = a / a.sum(), b / b.sum()
    points.append((my_kl(a, b), my_tv(a, b)))
points = np.array(points)  # [1500, 2]
assert (points[:, 1] <= np.sqrt(points[:, 0] / 2) + 1e-12).all()
assert (points[:, 1] <= np.sqrt(1 - np.exp(-points[:, 0])) + 1e-12).all()

figure, (ax,) = new_figure()
x = np.linspace(0, 4, 400)
ax.plot(*points[points[:, 0] < 4].T, ".", color=PALETTE["prompt"], markersize=3, label="random pairs")
ax.plot(x, np.minimum(np.sqrt(x / 2), 1.2), color=PALETTE["target"], label="Pinsker")
ax.plot(x, np.sqrt(1 - np.exp(-x)), "--", color=PALETTE["rejected"], label="Bretagnolle and Huber")
ax.axhline(1, color=PALETTE["line"], linewidth=0.8)
ax.set(xlabel="KL(p, q), nats", ylabel="TV(p, q)", ylim=(0, 1.15))
ax.legend(frameon=False, loc="lower right")
show(figure, "Random pairs as dots over KL and TV; all lie below both curves. Pinsker's curve passes TV = 1 "
             "at KL = 2 and then says nothing; the other approaches 1 and never reaches it.")
assert math.sqrt(2 / 2) == 1

# %% [markdown]
# Above 2 nats Pinsker allows a TV of more than 1, which is no news. The second bound goes on.
#
# **Proof of the second.** Let $m(v) = \min(p(v), q(v))$ and $M(v) = \max(p(v), q(v))$. They multiply to $p(v) q(v)$, and they
# sum to $\alpha$ and, since $m + M = p + q$, to $2 - \alpha$. By the inequality of Cauchy and Schwarz,
#
# $$\Bigl( \sum_v \sqrt{p(v) q(v)} \Bigr)^2 = \Bigl( \sum_v \sqrt{m(v)} \sqrt{M(v)} \Bigr)^2 \le \alpha (2 - \alpha) = (1 - \mathrm{TV})(1 + \mathrm{TV}) = 1 - \mathrm{TV}^2.$$
#
# On the other side, for finite KL, write the sum as an average under $p$ and use that $e^t$ curves upwards (Jensen):
#
# $$\sum_v \sqrt{p(v) q(v)} = \sum_{p(v) > 0} p(v)\, e^{\frac12 \log (q(v)/p(v))} \ge e^{\frac12 \sum p(v) \log (q(v)/p(v))} = e^{-\mathrm{KL}/2}.$$
#
# Square the second and put it below the first: $e^{-\mathrm{KL}} \le 1 - \mathrm{TV}^2$.
#
# (Where KL is infinite the bound says $\mathrm{TV} \le 1$, and there is nothing to prove.)
#
# **Proof of Pinsker.** Let $A = \{v : p(v) > q(v)\}$, $a = P(A)$ and $b = Q(A)$, so that $a - b = \mathrm{TV}$. If $A$ is empty, TV
# is 0, and if $q(v) = 0$ somewhere on $A$, KL is infinite; so let $0 < b < a \le 1$. First make two words out of many. On
# $A$, $p/a$ and $q/b$ are distributions, and their KL is not negative. Multiplied by $a$, that says
#
# $$\sum_{v \in A} p(v) \log \frac{p(v)}{q(v)} \ge a \log \frac ab, \quad\text{and outside } A \text{ in the same way}\quad \sum_{v \notin A} p(v) \log \frac{p(v)}{q(v)} \ge (1 - a) \log \frac{1-a}{1-b}$$
#
# (if $a = 1$ the second sum is empty, and 0). Together: $\mathrm{KL}(p \,\|\, q) \ge a \log \frac ab + (1 - a) \log \frac{1-a}{1-b}$.
#
# Now hold $a$ and move $b$ from $a$ downwards. The difference
#
# $$g(b) = a \log \frac ab + (1 - a) \log \frac{1 - a}{1 - b} - 2 (a - b)^2 \quad\text{has}\quad g'(b) = (b - a) \Bigl( \frac{1}{b(1 - b)} - 4 \Bigr).$$
#
# Since $b (1 - b) \le \tfrac14$, the bracket is not negative, and for $b < a$ the slope is at most 0: on its way from $b$ up to
# $a$ the function only falls, and it ends at $g(a) = 0$. So $g(b) \ge 0$, which is $\mathrm{KL} \ge 2\, \mathrm{TV}^2$.

# %%
def g(a, b):
    return a * math.log(a / b) + (1 - a) * math.log((1 - a) / (1 - b)) - 2 * (a - b) ** 2


step = 1e-6
for a, b in ((0.7, 0.2), (0.3, 0.9), (0.5, 0.4)):  # the derivative, against a difference quotient
    slope = (g(a, b + step) - g(a, b - step)) / (2 * step)
    assert math.isclose(slope, (b - a) * (1 / (b * (1 - b)) - 4), rel_tol=1e-6)
for a, b in product(every(2, 20), every(2, 20)):
    assert my_kl(a, b) >= 2 * float(my_tv(a, b)) ** 2 - 1e-12

# %% [markdown]
# ## The same as the package
#
# `tinyllm.info.entropy` holds these four functions, for float64 arrays, with the sums added left to right and with
# checks. Hold ours to it on random distributions with zeros in them, and on the cases at the edge.

# %%
from tinyllm.info.entropy import cross_entropy, entropy, kl_divergence, total_variation

infinite = 0
for _ in range(300):
    n = 1 + rng.below(7)
    a, b = (rng.uniforms(n) * (rng.uniforms(n) < 0.8) + np.eye(n)[0] * 0.1 for _ in range(2))
    a, b = a / a.sum(), b / b.sum()
    assert math.isclose(entropy(a), my_entropy(a), abs_tol=1e-12)
    assert math.isclose(total_variation(a, b), my_tv(a, b), abs_tol=1e-12)
    assert math.isclose(total_variation(a, b), 1 - overlap(a, b), abs_tol=1e-12)
    assert math.isclose(kl_divergence(a, b), my_kl(a, b), abs_tol=1e-12)
    assert math.isclose(cross_entropy(a, b), my_entropy(a) + my_kl(a, b), abs_tol=1e-12)
    infinite += kl_divergence(a, b) == math.inf
print("300 pairs equal;", infinite, "of them with an infinite KL")
assert entropy([1.0, 0.0]) == 0 and total_variation([1.0, 0.0], [0.0, 1.0]) == 1 and 0 < infinite < 300

# %% [markdown]
# ## Your turn: without a computer
#
# $p = [\tfrac12, \tfrac14, \tfrac14]$ and $q = [\tfrac14, \tfrac12, \tfrac14]$, the pair that the next chapters work with. Find TV and the overlap in your
# head, as fractions.

# %%
my_total_variation = my_overlap = None  # your answers, such as F(1, 3)
P, Q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
if my_total_variation is not None:
    right = my_total_variation == total_variation(P, Q)
    print("TV:", "right" if right else "not yet; half of the summed differences")
if my_overlap is not None:
    right = my_overlap == 1 - total_variation(P, Q)
    print("overlap:", "right" if right else "not yet; the lower bar of each word")

# %% tags=["solution"]
# Solution
my_total_variation = (F(1, 4) + F(1, 4) + 0) / 2
my_overlap = F(1, 4) + F(1, 4) + F(1, 4)
print("TV", my_total_variation, "overlap", my_overlap)
assert my_total_variation == total_variation(P, Q) and my_overlap == 1 - my_total_variation

# %% [markdown]
# ## Your turn: two judges who disagree
#
# The target is `judged` below. Find two drafts over the same three words: draft A with the *smaller KL*, draft B with the
# *larger overlap*. Which of them would you use for speculation?
#
# <details><summary>Hint</summary>
# KL is hard on a word that the draft calls nearly impossible, even a rare one. The overlap counts only how much
# is at stake.
# </details>

# %%
judged = [F(8, 10), F(1, 10), F(1, 10)]
draft_a = draft_b = None  # your answers, lists of three fractions


def judge_drafts(a, b):
    """What is wrong with the two drafts, in words."""
    for name, dist in (("A", a), ("B", b)):
        if len(dist) != 3 or min(dist) < 0 or abs(sum(dist) - 1) > 1e-9:
            return f"{name} is not a distribution over three words."
    if not my_kl(judged, a) < my_kl(judged, b):
        return f"KL: A {my_kl(judged, a):.3f}, B {my_kl(judged, b):.3f}; A's is to be smaller."
    if not overlap(judged, a) < overlap(judged, b):
        return f"overlap: A {overlap(judged, a)}, B {overlap(judged, b)}; B's is to be larger."
    return None


if draft_a is not None and draft_b is not None:
    print(judge_drafts(draft_a, draft_b) or "right")

# %% tags=["solution"]
# Solution
draft_a = [F(1, 2), F(1, 4), F(1, 4)]  # cautious everywhere
draft_b = [F(9, 10), F(1, 10), F(0)]  # never says the third word
for name, dist in (("A", draft_a), ("B", draft_b)):
    print(f"{name}: KL {my_kl(judged, dist):.3f}, overlap {overlap(judged, dist)}")
assert judge_drafts(draft_a, draft_b) is None
# For speculation B: it is kept nine times in ten, A only seven. For betting A.

# %% [markdown]
# ## Your turn: the best stubborn draft
#
# A stubborn draft proposes one fixed word with certainty. Over all words $x$ that it could fix on, which has the largest overlap with
# $p$, and how large is it? Write it as a function of any $p$ that returns both, the word's index first.

# %%
def my_best_stubborn(p):
    return None  # your answer: (the word's index, the overlap)


if my_best_stubborn(p) is not None:
    for dist in (p, judged, [F(1, 5), F(2, 5), F(2, 5)], [F(0), F(1)]):
        one_hots = [[F(int(i == x)) for i in range(len(dist))] for x in range(len(dist))]
        most = max(overlap(dist, one_hot) for one_hot in one_hots)
        x, given = my_best_stubborn(dist)
        if overlap(dist, one_hots[x]) != most:
            print("not yet for", [str(a) for a in dist], "- another word overlaps more than word", x)
            break
        if not math.isclose(given, most):
            print("not yet for", [str(a) for a in dist], "- the word is right, its overlap is not", given)
            break
    else:
        print("right")

# %% tags=["solution"]
# Solution
def my_best_stubborn(p):
    x = max(range(len(p)), key=lambda v: p[v])  # min(p, 1 at x and 0 elsewhere) leaves p(x)
    return x, p[x]


x, best_overlap = my_best_stubborn(p)
print("propose", WORDS[x], "- overlap", best_overlap)
assert best_overlap == F(1, 2) < overlap(p, q)
# Even a draft that knows nothing, such as q, can overlap more than the best stubborn one, if it draws honestly.

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_total_variation_is_one_minus_the_overlap` | $\alpha = 1 - \mathrm{TV}$ |
# | `test_total_variation_is_a_distance` | symmetric, 0 only between equals, no shorter detour |
# | `test_kl_is_not_symmetric_and_takes_the_target_first` | the order of the arguments |
# | `test_zero_times_log_zero_is_zero`, `test_an_outcome_that_the_other_rules_out_costs_infinity` | the zeros |
# | `test_the_divergence_is_never_negative_and_bounds_the_distance` | Gibbs, Pinsker, Bretagnolle and Huber |
# | `test_cross_entropy_is_entropy_plus_divergence` | what the price is added to |
#
# To build the module yourself: `ol start M11.1` in a terminal.
#
# ## If you skip this
#
# Take with you one line: a draft token can be kept with probability $\alpha = \sum_v \min(p(v), q(v)) = 1 - \mathrm{TV}(p, q)$ at best,
# and the parts where $p$ exceeds $q$ and where $q$ exceeds $p$ are equally large.
#
# ## Going further
#
# - Cover and Thomas, *Elements of Information Theory*, 2nd edition 2006, chapters 2 and 11: entropy, KL, Pinsker.
# - Levin, Peres and Wilmer, *Markov Chains and Mixing Times*, 2009, chapter 4: total variation and couplings.
# - Canonne, *A short note on an inequality between KL and TV*, 2022 (arXiv 2202.07198): the bound of Bretagnolle and
#   Huber, and how often it is forgotten.
# - Leviathan, Kalman and Matias, *Fast Inference from Transformers via Speculative Decoding*, ICML 2023, section 3.2:
#   $\alpha$ from the distance between draft and target.
# - Zhou et al., *DistillSpec*, ICLR 2024: training a draft for TV or for KL, and what each does to acceptance.
