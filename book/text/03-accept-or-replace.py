# %% [markdown]
# # 03 Accept or replace
#
# You will turn a draw from the draft into a draw from the target, exactly, by keeping it or replacing it, prove that this
# is right for every pair of distributions, and count it out in fractions.
#
# The draft wants to finish *the cat sat on the ...* and says: *sofa*. The target would say *sofa* less often. Throw the word
# away, and you have wasted the guess. Keep it every time, and you publish the draft's text under the target's name. This
# chapter finds what lies between. It is the heart of the book, and it is ten lines long.

# %%
import math
from fractions import Fraction as F
from itertools import product

import numpy as np

from tinyllm.explore.figure import PALETTE, new_figure, show

WORDS = ["mat", "floor", "sofa", "roof"]
p = [F(3, 8), F(3, 8), F(1, 8), F(1, 8)]  # the target
q = [F(1, 8), F(1, 8), F(1, 2), F(1, 4)]  # the draft


def said(values):
    """One fraction a word, such as "mat 3/8, floor 3/8"."""
    return ", ".join(f"{word} {value}" for word, value in zip(WORDS, values))


# %% [markdown]
# ## The old way: throw darts
#
# John von Neumann (1951) knew how to draw from a $p$ when you can only draw from $q$. Find a number $m$ with $p(v) \le m\,
# q(v)$ for every $v$, so that $m q$ is a roof over $p$. Draw $x \sim q$ and a $u$ between 0 and 1: the dart's height is $u$ times
# the roof over $x$. If the dart is below $p(x)$, keep $x$. If not, throw both away and try again.

# %%
m = max(a / b for a, b in zip(p, q))
figure, (ax,) = new_figure(height=2.9)
ids = np.arange(4)
roof = [float(m * b) for b in q]
ax.bar(ids, roof, 0.6, fill=False, edgecolor=PALETTE["draft"], linewidth=2, label="the roof, m q")
ax.bar(ids, [float(a) for a in p], 0.6, color=PALETTE["target"], label="target p")
for x, height in ((0, 0.2), (2, 0.9), (3, 0.5)):
    marker, kind = ("o", "kept") if height < p[x] else ("X", "rejected")
    ax.plot([x], [height], marker, color=PALETTE[kind], markersize=11, markeredgecolor="white")
ax.set(xticks=ids, xticklabels=WORDS, ylabel="probability", ylim=(0, 1.6))
ax.legend(frameon=False, loc="upper left")
show(figure, "With m = 3 the roof is 3/8, 3/8, 3/2, 3/4, and it touches the target on mat and floor. One dart "
             "falls below the target, on mat, and is kept; two fall between target and roof, on sofa and "
             "roof, and are thrown away.")
print("m =", m)
assert m == 3

# %% [markdown]
# **Predict:** with $m = 3$, how many tries does one word take on average?

# %%
kept_in_one_try = [b * (a / (m * b)) for a, b in zip(p, q)]  # drawn, and then below p
print("drawn and kept in one try:", said(kept_in_one_try), "- together", sum(kept_in_one_try))
assert kept_in_one_try == [a / m for a in p]

# %% [markdown]
# The $q$ cancels: in one try, $v$ is drawn and kept with probability $q(v) \cdot \frac{p(v)}{m\, q(v)} = \frac{p(v)}{m}$. So *if* a try
# keeps something, that is $v$ with probability $p(v)$, exactly. And a try keeps something with probability $\tfrac1m$, so
# there are $m$ tries on average: three.
#
# (Why does a success of probability $s$ take $1/s$ tries on average? A number of tries is 1 for the first, 1 more if there
# is a second, and so on, and there is an $n$-th try with probability $(1 - s)^{n-1}$. The sum $1 + (1-s) + (1-s)^2 + \dots$ is
# $1/s$.)
#
# Lovely, and useless for us. A try that is thrown away is a guess that the target has looked at for nothing. And if the
# draft gives a word 0 that the target does not, there is no $m$ at all.
#
# ## Keep what fits
#
# Try only once, then. Throw the roof away ($m = 1$) and keep $x$ whenever the draft does *not* overstate it; where the draft
# says $x$ twice as often as it should, keep it half of the time:
#
# $$\text{keep } x \text{ with probability } \min\left(1, \frac{p(x)}{q(x)}\right).$$
#
# **Predict:** which words does that keep always? How often is a draft kept, all in all? And: is a word that *was kept*
# distributed like $p$?

# %%
keep = [min(F(1), a / b) for a, b in zip(p, q)]
kept = [b * k for b, k in zip(q, keep)]  # drawn and kept
alpha = sum(kept)
print("kept if drawn: ", said(keep))
print("drawn and kept:", said(kept), "- together", alpha)
print("among the kept:", said(k / alpha for k in kept))
assert kept == [min(a, b) for a, b in zip(p, q)] and alpha == F(1, 2)

# %% [markdown]
# *Mat* and *floor* always; half of all drafts; and no: among the kept, every word has $\tfrac14$, which is neither $p$ nor $q$. It
# is the overlap, scaled up. So a rule that retries until something is kept gives the wrong text.
#
# But look at the middle line. The kept words fill the overlap $\min(p, q)$, and nothing of that is too much, for $\min(p, q)
# \le p$. They only fall short, and you know by how much.
#
# ## Fill what is missing
#
# What $p$ still lacks is $p - \min(p, q) = \max(0, p - q)$. Scaled to a distribution, that is the **residual**
#
# $$r(v) = \frac{\max(0, p(v) - q(v))}{Z}, \qquad Z = \sum_v \max(0, p(v) - q(v)).$$
#
# **Predict** $Z$. (Chapter 02 says what it is without a computation.)

# %%
def residual(p, q):
    """max(0, p - q) / Z; a copy of p when nothing is missing."""
    lacking = [max(0, a - b) for a, b in zip(p, q)]
    z = 0
    for a in lacking:  # left to right; Python's own sum() adds floats in its own way since version 3.12
        z += a
    return [a / z for a in lacking] if z > 0 else list(p)


Z = sum(max(F(0), a - b) for a, b in zip(p, q))
print("Z =", Z, "- residual:", said(residual(p, q)))
assert 1 - alpha == Z and residual(p, q) == [F(1, 2), F(1, 2), 0, 0]

# %% [markdown]
# $Z = 0$ means that $p$ exceeds $q$ nowhere. As both add up to 1 they are then equal, nothing is ever rejected, and the residual is
# never asked for. Floats add up to 1 only nearly, so it can be asked for all the same, and then $p$ itself is the right answer.

# %%
def draw_step(axes, p, q, words):
    """Left: what is kept, what is rejected, what is missing. Right: the residual."""
    left, right = axes
    ids = np.arange(len(p))
    p, q, r = (np.array([float(v) for v in dist]) for dist in (p, q, residual(p, q)))
    shared = np.minimum(p, q)
    left.bar(ids, shared, 0.6, color=PALETTE["kept"], label="kept, min(p, q)")
    left.bar(ids, np.maximum(q - p, 0), 0.6, bottom=shared, color=PALETTE["rejected"],
             hatch="//", edgecolor="white", label="rejected, q above p")
    left.bar(ids, np.maximum(p - q, 0), 0.6, bottom=shared, color=PALETTE["correction"],
             label="missing, p above q")
    left.set(xticks=ids, xticklabels=words, ylim=(0, 0.85), ylabel="probability")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    right.bar(ids, r, 0.6, color=PALETTE["correction"])
    right.set(xticks=ids, xticklabels=words, ylim=(0, 1.05), title="residual r")


figure, axes = new_figure(columns=2, height=3.0)
draw_step(axes, p, q, WORDS)
show(figure, "Left: 1/8 of each word is kept. The draft has 3/8 too much of sofa and 1/8 of roof, which is "
             "rejected, together 1/2; of mat and floor 1/4 each is missing, together 1/2. Right: the "
             "residual, 1/2 on mat and 1/2 on floor.")

# %% [markdown]
# The hatched area is what gets rejected, the purple one what is missing. They have the same size, $1 - \alpha = Z$: the draft
# must overstate some words by exactly what it understates others. So **every rejection pays for one replacement**: pour the
# hatched area into the purple one, and you have $p$. Two things follow:
#
# - a rejected word never comes back as its own replacement. It was rejected because $q > p$ there, and there $r = 0$;
# - nothing is ever tried twice. One draft, one verdict, one word.
#
# Take hold of it. **Predict** first, then move: with which draft is the residual all on one token? Can a token's residual be larger
# than its $p$? (The sliders start at a pair much like ours, in hundredths. They call the four words a to d, and what is missing
# is blue.)

# %% tags=["nbval-ignore-output"]
from tinyllm.explore import overlap

overlap.widget([0.4, 0.4, 0.1, 0.1], [0.1, 0.1, 0.5, 0.3])

# %% [markdown]
# Only one token has a residual when the draft gives too little to that token alone. And yes, a token's residual can be larger than
# its $p$, as on *mat* and *floor* above: it makes up for all the draws that were spent elsewhere.
#
# ## The step
#
# The whole rule takes two uniforms. The first decides, the second replaces.

# %%
def first_above(p, u):
    """Chapter 01: the first id whose running sum is above u."""
    running, last = 0, None
    for i, mass in enumerate(p):
        if mass > 0:
            running += mass
            last = i
            if u < running:
                break
    return last


def my_step(p, q, x, u_accept, u_resample):
    """(word, kept): turn the draft x, drawn from q, into a draw from p."""
    if u_accept < p[x] / q[x]:
        return x, True
    return first_above(residual(p, q), u_resample), False


for u_accept, u_resample in ((F(1, 10), F(9, 10)), (F(7, 10), F(1, 10)), (F(7, 10), F(9, 10))):
    word, was_kept = my_step(p, q, 2, u_accept, u_resample)
    what = "kept" if was_kept else f"replaced by {WORDS[word]}"
    print(f"sofa, with uniforms {u_accept} and {u_resample}: {what}")
assert my_step(p, q, 2, F(1, 10), F(9, 10)) == (2, True)
assert my_step(p, q, 2, F(7, 10), F(9, 10)) == (1, False)

# %% [markdown]
# The $\min(1, \cdot)$ is not in the code: where $p(x)/q(x) \ge 1$, every $u$ in $[0, 1)$ is below it.
#
# ## The proof
#
# **Claim.** If $x \sim q$, and $u_{accept}$ and $u_{resample}$ are uniform on $[0, 1)$ and independent of $x$ and of each other, then the
# step returns $v$ with probability $p(v)$, for every $p$ and $q$.
#
# **Proof.** $v$ comes out in two ways that exclude each other.
#
# *It was proposed and kept.* If $q(v) > 0$, that has probability $q(v) \min\bigl(1, \tfrac{p(v)}{q(v)}\bigr) = \min(q(v), p(v))$. If $q(v) = 0$ it
# is never proposed; the probability is 0, and that is $\min(q(v), p(v))$ too.
#
# *Some word was rejected, and the residual picked $v$.* Added over all words, something is kept with probability
# $\alpha = \sum_w \min(q(w), p(w))$. So something is rejected with probability
#
# $$1 - \alpha = \sum_w \bigl( p(w) - \min(p(w), q(w)) \bigr) = \sum_w \max(0, p(w) - q(w)) = Z.$$
#
# Whether it is, depends on $x$ and $u_{accept}$ alone. $u_{resample}$ is independent of both, so $v$ follows with probability
# $Z\, r(v) = \max(0, p(v) - q(v))$. If $Z = 0$, nothing is ever rejected, and $\max(0, p(v) - q(v))$ is 0 as well.
#
# Together: $P(v) = \min(q(v), p(v)) + \max(0, p(v) - q(v)) = p(v)$, for if $p(v) \le q(v)$ this is $p(v) + 0$, and otherwise $q(v) + p(v) -
# q(v)$. $\blacksquare$
#
# Nothing was asked of $q$. It may be a small model, a lookup, or nonsense.

# %%
for word, a, b, r in zip(WORDS, p, q, residual(p, q)):
    stays, replaces = min(b, a), (1 - alpha) * r
    print(f"{word:6} kept {stays} + replacement {replaces} = {stays + replaces}")
    assert stays + replaces == a

# %% [markdown]
# ## Count the code, not the formula
#
# The proof is about the rule. Is the *code* the rule? Count it out with chapter 01's midpoints: let both uniforms run over
# $(j + \tfrac12)/N$. If the borders that a uniform is compared with (the ratios $p/q$ for the first, the running sums of $r$ for the
# second) are multiples of $1/N$, each midpoint stands for exactly its share of the interval. Weigh each draft $x$ with $q(x)$, and add up. All in fractions, so
# that nothing is rounded.

# %%
def borders(p, q):
    """What the step compares u_accept with, and what it compares u_resample with."""
    r = residual(p, q)
    return [a / b for a, b in zip(p, q) if b > 0], [sum(r[: i + 1]) for i in range(len(r))]


def common(fractions):
    """The smallest N such that each of them is a multiple of 1/N."""
    return math.lcm(*(F(f).denominator for f in fractions))


def midpoints(N):
    return [F(2 * j + 1, 2 * N) for j in range(N)]


def output_of(step, p, q, more=1):
    """The exact distribution of what `step` returns, and how often it keeps the draft.

    more: for a step with other borders for u_resample, a number that makes them multiples of 1/N too.
    """
    n_accept, n_resample = map(common, borders(p, q))
    n_resample *= more
    out, kept = [F(0)] * len(p), F(0)
    for x, u, v in product(range(len(p)), midpoints(n_accept), midpoints(n_resample)):
        if q[x] > 0:
            word, was_kept = step(p, q, x, u, v)
            share = q[x] / (n_accept * n_resample)
            out[word] += share
            kept += share * was_kept
    return out, kept


out, kept = output_of(my_step, p, q)
print("emitted:", said(out), "- kept:", kept)
assert out == p and kept == alpha

# %% [markdown]
# Equal, with `==`. And for *every* pair of distributions over three words in quarters: 225 pairs, with zeros in $p$, zeros in
# $q$, pairs that share nothing, and pairs that are the same.

# %%
quarters = [[F(c, 4) for c in one] for one in product(range(5), repeat=3) if sum(one) == 4]
for a, b in product(quarters, quarters):
    out, kept = output_of(my_step, a, b)
    assert out == a and kept == sum(map(min, a, b))
print(len(quarters) ** 2, "pairs: the output is the target, and kept is the overlap")
assert len(quarters) == 15

# %% [markdown]
# ## Four ways to be wrong
#
# Each of these looks reasonable. **Predict** for the first three which words come out
# too often: those that the target prefers or those that the draft prefers? And for the fourth, which of the two possible
# replacements, *mat* or *floor*?
#
# 1. **keep everything**: the draft is good, why reject?
# 2. **replace from p**: the replacement should follow the target, so draw it from the target.
# 3. **replace from p without x**: the same, but do not draw again what was just rejected.
# 4. **one uniform for both**: the number is random anyway, so use it twice.

# %%
def without(p, x):
    rest = [F(0) if v == x else a for v, a in enumerate(p)]
    return [a / sum(rest) for a in rest]


def keep_everything(p, q, x, u, v):
    return x, True


def replace_from_p(p, q, x, u, v):
    return (x, True) if u < p[x] / q[x] else (first_above(p, v), False)


def replace_from_the_rest(p, q, x, u, v):
    return (x, True) if u < p[x] / q[x] else (first_above(without(p, x), v), False)


def one_uniform(p, q, x, u, v):
    return my_step(p, q, x, u, u)


# Rules 2 and 3 compare v with other borders. Rule 2: with those of p, multiples of 1/8. Rule 3: only sofa and roof are
# ever rejected, and p without one of them leaves 7/8, so multiples of 1/7.
# (Rule 4 compares u with 1/2 as well, a multiple of 1/4 like the ratios.)
wrong = {
    "keep everything": (keep_everything, 1),
    "replace from p": (replace_from_p, 8),
    "p without x": (replace_from_the_rest, 7),
    "one uniform": (one_uniform, 1),
}
figure, axes = new_figure(columns=4, height=2.5)
errors = {}
for ax, (name, (step, more)) in zip(axes, wrong.items()):
    out, _ = output_of(step, p, q, more)
    errors[name] = [a - b for a, b in zip(out, p)]
    print(f"{name:16} {said(out):38} off by {sum(map(abs, errors[name])) / 2} in total variation")
    ax.bar(range(4), [float(e) for e in errors[name]], 0.7, color=PALETTE["rejected"])
    ax.axhline(0, color=PALETTE["line"], linewidth=0.8)
    ax.set(xticks=range(4), xticklabels=[word[0] for word in WORDS], ylim=(-0.3, 0.45), title=name)
    ax.title.set_fontsize(9)
    assert sum(out) == 1 and out != p
axes[0].set_ylabel("too much")
show(figure, "What each wrong rule emits, less the target, for mat, floor, sofa, roof. Keeping everything: too "
             "much sofa and roof. Replacing from p, or from p without x: smaller errors of the same kind. "
             "One uniform for both: too much floor, too little mat.")
assert all(errors[name][2] > 0 > errors[name][0] for name in list(wrong)[:3])
assert errors["one uniform"][1] == -errors["one uniform"][0] > 0 == errors["one uniform"][2] == errors["one uniform"][3]

# %% [markdown]
# The first three err towards the draft. Rule 2 is the most tempting: the replacement *is* drawn from the target, how can that be
# wrong? Because the kept words have already had their share. What the draft proposes gets one chance to be kept, and
# then another in the replacement. The residual gives the second chance to the words that were short of a first.
#
# Rule 3 is worth remembering, for it is *right* in one case, which comes next. Rule 4 is another kind of mistake: whoever was
# rejected had a large $u$, and used again, a large $u$ points at the late part of the residual. So *floor*, the
# later word, comes out too often.

# %% [markdown]
# ## A draft that does not draw
#
# Copying from the prompt proposes $x$ with certainty. Nothing was drawn, so what is $q$? A sure choice is a draw like any other:
# from the distribution that is 1 at $x$ and 0 elsewhere, the **one-hot** $e_x$. Put that into the rule, and:
#
# - $x$ is kept with probability $\min(1, p(x)/1) = p(x)$;
# - $\max(0, p - e_x)$ is $p$ with $x$ taken out, and $Z = 1 - p(x)$: here the residual *is* $p$ without $x$, rule 3.
#
# **Predict:** a copying draft always says *roof*, which the target gives $\tfrac18$. What is the distribution of what comes out?

# %%
for x in range(4):
    e_x = [F(int(v == x)) for v in range(4)]
    out, kept = output_of(my_step, p, e_x)
    print(f"always {WORDS[x]:5}: kept {kept}; emitted {said(out)}")
    assert out == p and kept == p[x]
    assert residual(p, e_x) == without(p, x)

figure, axes = new_figure(columns=2, height=2.8)
draw_step(axes, p, [F(0), F(0), F(0), F(1)], WORDS)
axes[0].set_ylim(0, 1.45)
show(figure, "A draft that always says roof. Left: 1/8 of its proposals are kept and 7/8 rejected; missing are "
             "3/8 of mat, 3/8 of floor, 1/8 of sofa. Right: the residual is 3/7, 3/7, 1/7 and nothing on roof.")

# %% [markdown]
# Exactly $p$, whatever the draft insists on. Even a word with $p(x) = 0$ is no harm: it is never kept, and the residual is $p$.
#
# ## What a bad draft costs
#
# Let a draft slide from perfect ($q = p$) to hopeless (always *roof*). **Predict** the two curves: how often it is kept, and how often
# *mat* comes out.

# %%
slide = [F(i, 4) for i in range(5)]
kept_at, mat_at = [], []
for t in slide:
    mixed = [(1 - t) * a + t * (v == 3) for v, a in enumerate(p)]
    out, kept = output_of(my_step, p, mixed)
    kept_at.append(kept)
    mat_at.append(out[0])
figure, (ax,) = new_figure(height=2.8)
steps = [float(t) for t in slide]
ax.plot(steps, [float(k) for k in kept_at], "o-", color=PALETTE["kept"], label="a draft is kept, alpha")
ax.plot(steps, [float(a) for a in mat_at], "s-", color=PALETTE["target"], label="mat comes out")
ax.set(xlabel="from a perfect draft (0) to one that always says roof (1)", ylim=(0, 1.05))
ax.set_ylabel("probability")
ax.legend(frameon=False)
show(figure, "As the draft goes from perfect to hopeless, the share of kept drafts falls in a straight line from "
             "1 to 1/8; the probability of mat stays at 3/8 throughout.")
assert set(mat_at) == {F(3, 8)} and kept_at == [1 - t * F(7, 8) for t in slide]

# %% [markdown]
# ## Another exact rule, and why ours keeps more
#
# There is a simpler rule; transformers uses it where it does not know $q$. Draw $y \sim p$ and do not look at the draft. If $y = x$, say that the
# draft was accepted. Emit $y$ in any case. It is exact for every draft, because what it emits is always the target's own draw.
# **Predict:** with $p = [0.6, 0.2, 0.1, 0.1]$ and $q = [0.7, 0.2, 0.05, 0.05]$, close friends, how often does each rule accept?

# %%
friends = [F(6, 10), F(2, 10), F(1, 10), F(1, 10)], [F(7, 10), F(2, 10), F(1, 20), F(1, 20)]
compare = sum(a * b for a, b in zip(*friends))
ratio = sum(map(min, *friends))
print(f"sample and compare {float(compare):.2f}, keep or replace {float(ratio):.2f}")
assert (compare, ratio) == (F(47, 100), F(90, 100))
certain = [F(1), F(0), F(0), F(0)]
compare, ratio = sum(a * b for a, b in zip(friends[0], certain)), sum(map(min, friends[0], certain))
print(f"against a draft that always says the first word: {float(compare):.2f} and {float(ratio):.2f}")
assert compare == ratio == F(6, 10)

# %% [markdown]
# Two independent draws agree only by luck: $\sum_v p(v) q(v)$, which is at most $\sum_v \min(p(v), q(v))$, term by term. Our rule
# judges $x$ by $p(x)/q(x)$, and does not hope that a second draw equals it. For a draft that does not draw, the two rules accept equally often. And no rule
# that emits exactly $p$ keeps more than ours at one position: $\alpha$ is the bound of chapter 02's coupling inequality, reached.
#
# ## Details that decide whether two engines agree
#
# **Strictly below.** The code says `u < p / q`. **Predict:** let $u$ run over $0, \tfrac18, \dots, \tfrac78$. For the ratio
# $\tfrac12$, how many are kept with `<`, and how many with `<=`? And for the ratio 0?

# %%
eighths = [F(j, 8) for j in range(8)]
for ratio in (F(1, 2), F(0)):
    below, up_to = sum(u < ratio for u in eighths), sum(u <= ratio for u in eighths)
    print(f"ratio {ratio}: < keeps {below} of 8, <= keeps {up_to}")
assert sum(u < F(1, 2) for u in eighths) == 4 and sum(u <= 0 for u in eighths) == 1
assert 2**24 > 16.7e6 and 160 < 2**24 / 100_000 < 180  # draws, and seconds at 100,000 draws a second

# %% [markdown]
# $[0, \tfrac12)$ holds exactly half of the grid; with `<=` there is one too many. And with ratio 0, `<=` would keep a word that the target never
# says, whenever $u$ is exactly 0. With 53 bits that hardly ever happens; but a float32 uniform with 24 bits is 0 once in 17
# million draws, and at 100,000 draws a second that is every three minutes.
#
# **One division.** For real numbers, $u < p/q$ and $u q < p$ are the same. **Predict:** are they the same for floats?

# %%
p_x, q_x, u = 5 / 14, 8 / 14, 0.625
print("u < p / q:", u < p_x / q_x, "  u * q < p:", u * q_x < p_x)
assert p_x / q_x == 0.625 and not u < p_x / q_x and u * q_x < p_x
quotient, product_gap = F(p_x) / F(q_x), F(u) * F(q_x) - F(p_x)  # what these very floats give when nothing is rounded
print(f"unrounded: p / q - u = {float(quotient - F(u)):.1e}  u * q - p = {float(product_gap):.1e}")
assert quotient > F(u) and product_gap < 0

# %% [markdown]
# No. Unrounded, both forms say yes for these floats: the quotient is above $u$ by a hair. It was the quotient that was rounded, down onto
# $u$, and so the division says no. That is wrong, for this one $u$ among $2^{53}$, which does not matter. What matters is that every
# engine gives the *same* answer. So the rule fixes one form, one division, and an engine that is to replay our text must use it.
#
# **Two uniforms, always.** A kept draft does not need $u_{resample}$. It is drawn all the same. Then a position takes two
# uniforms whatever happens at it, and whoever reads along, another engine or you with a debugger, knows which number belongs to which
# position.
#
# ## The same as the package
#
# `tinyllm.prob.rejection` holds these functions for float64 arrays, and `rejection_sample` for the darts. In floats every
# quotient and sum is rounded: a border may sit a part in $10^{16}$ beside its place. The theorem is about the rule; what the
# package adds is that the rounding is *fixed*, operation by operation, so that a port decides alike. Ours does the same
# operations when it gets floats. Compare the two on random pairs, with uniforms on the border and one float to either side.

# %%
from tinyllm.num.rng import PCG32
from tinyllm.prob.rejection import acceptance_probability, residual_distribution
from tinyllm.prob.rejection import rejection_sample, speculative_step

rng, near = PCG32(3).substream("shuffle"), 0
for _ in range(200):
    n = 2 + rng.below(6)
    a, b = (rng.uniforms(n) * (rng.uniforms(n) < 0.8) + np.eye(n)[0] * 0.1 for _ in range(2))
    a, b = (dist / dist.sum() for dist in (a, b))
    x = first_above(b, rng.uniform())
    assert residual(a, b) == residual_distribution(a, b).tolist()
    assert math.isclose(acceptance_probability(a, b), sum(map(min, a, b)), abs_tol=1e-12)
    border = a[x] / b[x]
    for u in (rng.uniform(), border, np.nextafter(border, 0), np.nextafter(border, 2)):
        if 0 <= u < 1:
            v = rng.uniform()
            assert my_step(a, b, x, u, v) == speculative_step(a, b, x, u, v)
            near += u != border and abs(u - border) < 1e-15
print("200 pairs equal;", near, "decisions one float beside the border")
assert near > 100

p_floats, q_floats = np.array(p, float), np.array(q, float)
words = 20_000
tries = [rejection_sample(p_floats, q_floats, 3, rng)[1] for _ in range(words)]
error = math.sqrt(3 * (3 - 1) / words)  # the variance of the tries is m (m - 1)
print(f"darts: {np.mean(tries):.2f} tries a word over {words} words; 3 is expected, with a standard error of {error:.2f}")
assert abs(np.mean(tries) - 3) < 4 * error

# %% [markdown]
# And the whole theorem once more, for the package's own step with its floats: all numbers here are eighths or their quotients, so
# counting is exact. The package also refuses what cannot be. **Predict** what is wrong with the two calls at the end.

# %%
def packaged(p, q, x, u, v):
    return speculative_step(p_floats, q_floats, x, float(u), float(v))


out, kept = output_of(packaged, p, q)
assert out == p and kept == alpha
print("the package's step emits", said(out))

# %% tags=["nbval-ignore-output"]
refused = 0
for x, u, v in ((1, 0.5, 0.5), (0, 0.1, 1.0)):
    try:
        speculative_step([0.5, 0.5], [1.0, 0.0], x, u, v)
    except ValueError as error:  # the sentence is the implementation's own
        print(error)
        refused += 1
assert refused == 2

# %% [markdown]
# A word with $q(x) = 0$ was not drawn from $q$, so somebody reports another distribution than they used. And a uniform of 1 is refused even
# where it would not have been used: a faulty source should be noticed on every round, not on unlucky ones.

# %% [markdown]
# ## Your turn: by hand
#
# $p = [\tfrac12, \tfrac14, \tfrac14]$, $q = [\tfrac14, \tfrac12, \tfrac14]$, and $x \sim q$. With what probability does token 0 come out *as a replacement*? And how
# likely is it that the draft 1 was proposed *and* kept?

# %%
as_replacement = proposed_and_kept = None  # your answers, such as F(1, 3)
P, Q = [F(1, 2), F(1, 4), F(1, 4)], [F(1, 4), F(1, 2), F(1, 4)]


def share(wanted):
    """How often `wanted(x, word, kept)` holds, counted over all drafts and uniforms."""
    ways = product(range(3), midpoints(4), midpoints(4))
    return sum(Q[x] / 16 for x, u, v in ways if wanted(x, *my_step(P, Q, x, u, v)))


if as_replacement is not None:
    right = as_replacement == share(lambda x, word, kept: word == 0 and not kept)
    print("replacement:", "right" if right else "not yet; first, how often is anything rejected?")
if proposed_and_kept is not None:
    right = proposed_and_kept == share(lambda x, word, kept: x == 1 and kept)
    print("kept:", "right" if right else "not yet; proposed how often, and then kept how often?")

# %% tags=["solution"]
# Solution
as_replacement = (1 - F(3, 4)) * 1  # a quarter is rejected, and the residual is all on token 0
proposed_and_kept = F(1, 2) * F(1, 2)
print("replacement", as_replacement, "kept", proposed_and_kept)
assert as_replacement == share(lambda x, word, kept: word == 0 and not kept)
assert proposed_and_kept == share(lambda x, word, kept: x == 1 and kept) == P[1]

# %% [markdown]
# ## Your turn: a copy that calls itself a draw
#
# A draft always proposes *sofa* and reports that it drew it from the uniform distribution, $\tfrac14$ on each word. The verifier believes
# it. What comes out? Give the distribution for $p = [\tfrac38, \tfrac38, \tfrac18, \tfrac18]$.
#
# <details><summary>Hint</summary>
# How often is the word kept, if the verifier takes q(x) to be 1/4? And what is the residual of p and the reported q?
# </details>

# %%
my_emitted = None  # your answer, a list of four fractions
claimed = [F(1, 4)] * 4


def emitted_by_liar():
    """Counted: x is always 2, and the verifier uses the claimed q."""
    out = [F(0)] * 4
    for u, v in product(midpoints(8), midpoints(8)):
        out[my_step(p, claimed, 2, u, v)[0]] += F(1, 64)
    return out


if my_emitted is not None:
    if list(my_emitted) == emitted_by_liar():
        print("right")
    elif len(my_emitted) != len(p):
        print("not yet; there are four words")
    elif abs(sum(my_emitted) - 1) > 1e-9:
        print("not yet; they do not add up to 1")
    else:
        print("not yet; how often is sofa kept, if the verifier takes its q to be 1/4?")

# %% tags=["solution"]
# Solution
half_kept = p[2] / claimed[2]
my_emitted = [(1 - half_kept) * r for r in residual(p, claimed)]
my_emitted[2] += half_kept
print("emitted:", said(my_emitted))
assert my_emitted == emitted_by_liar() == [F(1, 4), F(1, 4), F(1, 2), 0]
# Sofa comes out four times as often as it should, and roof never. The proof needs q to be the truth: x must come from it.

# %% [markdown]
# ## Your turn: the darts without a roof
#
# Somebody keeps $x$ with probability $\min(1, p(x)/q(x))$ and, after a rejection, draws a new $x \sim q$ and tries again, until one
# is kept. Write the distribution of what comes out, as a function of $p$ and $q$, and the average number of drafts it takes.

# %%
def my_retry(p, q):
    return None  # your answer: (the distribution, the average number of drafts)


if my_retry(p, q) is not None:
    for a, b in ((p, q), (P, Q), (p, p)):
        given, drafts = my_retry(a, b)
        given = list(given)
        once = [b[x] * min(F(1), a[x] / b[x]) for x in range(len(a))]  # what a single try keeps
        again = 1 - sum(once)
        if drafts != 1 + again * drafts:
            print("not yet: it takes one draft, and after a rejection as many again on average")
            break
        if len(given) != len(a) or given != [k + again * g for k, g in zip(once, given)]:
            print("not yet: the distribution after a rejection is the one you began with")
            break
    else:
        print("right")

# %% tags=["solution"]
# Solution
def my_retry(p, q):
    shared = [min(a, b) for a, b in zip(p, q)]
    return [s / sum(shared) for s in shared], 1 / sum(shared)


given, drafts = my_retry(p, q)
print("emits", said(given), "and takes", drafts, "drafts a word")
assert given == [F(1, 4)] * 4 and drafts == 2
# Slower than our step and wrong as well: the overlap, scaled up, is not the target.

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_one_step_emits_the_target_exactly` | the theorem, for any $p$ and $q$, in fractions |
# | `test_the_enumeration_can_fail` | the counting finds rule 2 out |
# | `test_a_deterministic_draft_is_exact` | the one-hot, also where $p(x) = 0$ |
# | `test_alpha_and_the_residual_fit_together` | $1 - \alpha = Z$ and $\min(p, q) + Z r = p$ |
# | `test_acceptance_is_strict`, `test_acceptance_is_one_division` | the border |
# | `test_a_replacement_is_never_the_rejected_token` | $r = 0$ where something can be rejected |
# | `test_an_accepted_token_ignores_the_second_uniform` | drawn, and not used |
# | `test_one_try_accepts_each_id_in_proportion_to_the_target`, `test_the_mean_number_of_tries_is_m` | the darts |
#
# To build the module yourself: `ol start M07.6` in a terminal.
#
# ## If you skip this
#
# Everything later rests on one step: keep $x \sim q$ when $u < p(x)/q(x)$, else draw from $\max(0, p - q)/Z$. Its output is a draw
# from $p$, whatever $q$ is, provided that $x$ really came from $q$. Chapter 08 works it with small numbers, chapter 09
# strings several steps together.
#
# ## Going further
#
# - von Neumann, *Various Techniques Used in Connection with Random Digits*, 1951: the darts.
# - Leviathan, Kalman and Matias, *Fast Inference from Transformers via Speculative Decoding*, ICML 2023, section 2.3 and
#   appendix A.1; Chen et al., *Accelerating Large Language Model Decoding with Speculative Sampling*, 2023, theorem 1: the
#   step, found twice in one winter.
# - Lindvall, *Lectures on the Coupling Method*, 1992: the step as a maximal coupling, older than language models.
# - vLLM's rejection sampler finds the replacement as the largest $w_v / E_v$, with $w = \max(0, p - q)$ and each $E_v$
#   exponential: a race that $v$ wins with probability $w_v / \sum w$, so that $Z$ is never computed.
# - Sun et al., *Block Verification Accelerates Speculative Decoding*, 2024 (arXiv 2403.10444): at one position no rule keeps
#   more, but judging several positions together can.
