# %% [markdown]
# # 08 By hand
#
# You will work three small cases of speculative decoding with pencil-sized numbers, and see the package give the same
# answers, to the draw.
#
# Each round has two parts. A **draft** guesses the next tokens. The **target** checks the guesses in one pass and adds
# one token of its own. Here you do the checking yourself, with exact fractions, before any code does it for you.

# %%
from fractions import Fraction as F

import numpy as np

from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import PromptLookupDraft, verify_draft
from tinyllm.prob.rejection import acceptance_probability, residual_distribution


class Replay:
    """Hands out given uniforms in order, and counts them."""

    def __init__(self, *uniforms: float) -> None:
        self.uniforms, self.drawn = uniforms, 0

    def uniform(self) -> float:
        self.drawn += 1
        return self.uniforms[self.drawn - 1]


# %% [markdown]
# ## Sampled: keep or replace
#
# The vocabulary has three tokens. The target wants $p$, the draft drew its token from $q$, and it drew token 1:
#
# $$p = [\tfrac12, \tfrac14, \tfrac14], \qquad q = [\tfrac14, \tfrac12, \tfrac14], \qquad x = 1.$$
#
# The draft proposes token 1 twice as often as the target wants it. **Predict:** how often should a proposed 1 be kept?

# %%
p = [F(1, 2), F(1, 4), F(1, 4)]
q = [F(1, 4), F(1, 2), F(1, 4)]
x = 1
keep = min(F(1), p[x] / q[x])
print("kept with probability", keep)
assert keep == F(1, 2)

# %% [markdown]
# Half of the time. In general a token drawn from $q$ is kept with probability $\min(1, p(x)/q(x))$: the code draws a
# uniform $u$ and keeps the token when $u < p(x)/q(x)$. That is the **acceptance rule**; all
# that follows in this example is what it leads to.
#
# Take $u = 0.7$. It is not below $\tfrac12$, so the token is rejected. What replaces it must come from what $p$ still
# lacks: the **residual distribution** $r = \max(0, p - q) / Z$, where $Z$ is the sum of the numerators.

# %%
excess = [max(F(0), a - b) for a, b in zip(p, q)]
Z = sum(excess)
residual = [e / Z for e in excess]
print("max(0, p - q):", [str(e) for e in excess])
print("Z:", Z)
print("residual:", [str(r) for r in residual])
assert (Z, residual) == (F(1, 4), [1, 0, 0])

# %%
figure, (left, right) = new_figure(columns=2, height=2.8)
ids = np.arange(3)
left.bar(ids - 0.2, [float(v) for v in p], 0.4, color=PALETTE["target"], label="target p")
left.bar(ids + 0.2, [float(v) for v in q], 0.4, color=PALETTE["draft"], label="draft q")
left.set(xticks=ids, xlabel="token", ylabel="probability", title="what each wants", ylim=(0, 1.05))
left.legend(frameon=False)
right.bar(ids, [float(v) for v in residual], 0.5, color=PALETTE["correction"])
right.set(xticks=ids, xlabel="token", title="residual", ylim=(0, 1.05))
show(figure, "Left: p is 1/2, 1/4, 1/4 and q is 1/4, 1/2, 1/4. Right: the residual puts everything on token 0, "
             "the only one that the target wants more often than the draft proposes it.")

# %% [markdown]
# A model returns one number a token, its **logit** $\ell_v$: any real number, and the token's probability is
# $p(v) = e^{\ell_v} / \sum_w e^{\ell_w}$. So the logarithms of $p$ are logits of $p$.
#
# `verify_draft` does a whole round. You give it, in this order:
#
# - the target's logits, one row for each draft token and one more for the token after the last;
# - the draft tokens, and the distributions they were drawn from, one row each;
# - the sampling parameters. The **temperature** divides the logits before they become probabilities: at 1, the default,
#   you get the model's own distribution, and 0 stands for greedy, always the largest logit;
# - the history, which is what was generated before this round (here nothing: `[]`), and the source of uniforms.
#
# It returns two things: the list of tokens that the round **emitted**, and how many draft tokens it **accepted**.
#
# The first row of logits below is $\log p$; the second is the target's view after token 1. The source hands out $0.7$
# for keeping, then $0.4$ for the replacement. **Predict** both results, and how many uniforms are drawn.

# %%
after_1 = [1 / 32, 1 / 32, 15 / 16]
logits = np.log(np.array([[0.5, 0.25, 0.25], after_1]))  # [m + 1, V]
probs = np.array([[0.25, 0.5, 0.25]])  # [m, V]
params = SamplingParams()
rng = Replay(0.7, 0.4)
emitted, accepted = verify_draft(logits, [1], probs, params, [], rng)
print("emitted", emitted, "accepted", accepted, "uniforms drawn:", rng.drawn)
assert (emitted, accepted, rng.drawn) == ([0], 0, 2)

# %% [markdown]
# The draft is rejected, and all of the residual sits on token 0: any second uniform picks it. The second row is not
# looked at, since token 1 never happened.
#
# When every draft is kept, the target adds a **bonus token** from its next row, with one uniform more. Now the source
# hands out $0.3$, $0.9$ and $0.1$, and draws all three. **Predict** what is emitted. Which of the three does not matter?

# %%
rng = Replay(0.3, 0.9, 0.1)
emitted, accepted = verify_draft(logits, [1], probs, params, [], rng)
print("emitted", emitted, "accepted", accepted, "uniforms drawn:", rng.drawn)
assert (emitted, accepted, rng.drawn) == ([1, 2], 1, 3)

# %% [markdown]
# $0.3$ is below $\tfrac12$, so token 1 is kept. The $0.9$ is drawn all the same and ignored: a position takes two
# uniforms whether its draft is kept or not, so the count never depends on luck there. The bonus comes from the second
# row, $[\tfrac1{32}, \tfrac1{32}, \tfrac{15}{16}]$: $0.1$ lies above the first two together, and picks token 2.

# %% [markdown]
# ### Why this is exact
#
# Average over everything that can happen, the draft's draw included. A token $v$ comes out in two ways: it was proposed
# and kept, or something was rejected and the residual picked it.
#
# $$P(v) = \min(q(v), p(v)) + (1 - \alpha)\, r(v), \qquad \alpha = \sum_v \min(p(v), q(v)).$$
#
# Here $\alpha$ is the probability that a draft token is kept, averaged over the tokens that the draft may draw. Since
# $1 - \alpha = Z$, the second part is $\max(0, p(v) - q(v))$, and the two parts add up to $p(v)$.
#
# **Predict** for tokens 0 and 1: how much of each comes from a kept draft, how much from a replacement?

# %%
alpha = sum(min(a, b) for a, b in zip(p, q))
assert 1 - alpha == Z
for v in range(3):
    kept = q[v] * min(F(1), p[v] / q[v])
    replaced = (1 - alpha) * residual[v]
    print(f"token {v}: kept {kept}, as a replacement {replaced}, together {kept + replaced}")
    assert kept + replaced == p[v]

# %% [markdown]
# Token 1 comes out only as a kept draft, half of the times that it was proposed: $\tfrac12 \cdot \tfrac12 = \tfrac14$. Token
# 0 is always kept, which gives $\tfrac14$, and the other $\tfrac14$ are the rejected 1s. Here is the whole case as a table,
# every number of it computed.

# %%
def line(step, computation, result):
    print(f"{step:32s}{computation:42s}{result}")


u_accept, u_resample = F(7, 10), F(4, 10)
line("acceptance probability", f"min(1, p(1)/q(1)) = min(1, {p[1]} / {q[1]})", keep)
line(f"u_accept = {u_accept}", f"{u_accept} < {keep}?", "kept" if u_accept < keep else "rejected")
line("residual", f"max(0, p - q) = {', '.join(map(str, excess))}; Z = {Z}", ", ".join(map(str, residual)))
replacement = next(v for v in range(3) if u_resample < sum(residual[: v + 1]))
line(f"u_resample = {u_resample}", "first id whose running sum exceeds it", f"token {replacement}")
bonus = [F(v) for v in after_1]
third = next(v for v in range(3) if F(1, 10) < sum(bonus[: v + 1]))
line("with u_accept = 3/10 instead", f"3/10 < {keep}; then the bonus row at 1/10", f"tokens 1 and {third}")
assert (replacement, third) == (0, 2) and not u_accept < keep and F(3, 10) < keep

# %% [markdown]
# ## Greedy: the same rule, without chance
#
# At temperature 0 the target's distribution is all on its largest logit. A draft token is kept while it *is* that
# token; the first mismatch is replaced by it; nothing is drawn, so there are no draft distributions and no uniforms to
# pass: both are `None` below.
#
# The target's rows are `[0, 1, 3]`, `[2, 1, 0]`, `[0, 5, 1]`. **Predict** the result for the drafts `[2, 1]`, `[2, 0]`
# and for no draft at all.

# %%
rows = np.array([[0.0, 1, 3], [2, 1, 0], [0, 5, 1]])
greedy = SamplingParams(temperature=0)
print("largest logit of each row:", rows.argmax(axis=1).tolist())
for draft in ([2, 1], [2, 0], []):
    print("draft", draft, "gives", verify_draft(rows[: len(draft) + 1], draft, None, greedy, [], None))
assert verify_draft(rows, [2, 1], None, greedy, [], None) == ([2, 0], 1)
assert verify_draft(rows, [2, 0], None, greedy, [], None) == ([2, 0, 1], 2)
assert verify_draft(rows[:1], [], None, greedy, [], None) == ([2], 0)

# %% [markdown]
# `[2, 1]`: token 2 is right, token 1 is not, so the target's 0 takes its place. `[2, 0]`: both are right, and row 2 adds
# its own 1. With no draft a round is plain decoding: one token.
#
# ## Prompt lookup: a draft for free
#
# The cheapest draft copies. Look at the last few ids, find where they occurred before, and propose what came next. The
# context is `1 2 3 9 1 2`. **Predict** the draft for at most three ids in a match and three ids of draft.

# %%
context = [1, 2, 3, 9, 1, 2]
for n in (3, 2, 1):
    suffix = context[-n:]
    starts = [i for i in range(len(context) - n) if context[i : i + n] == suffix]
    print(f"last {n}: {suffix}, seen before at {starts}")
draft, distributions = PromptLookupDraft(max_ngram=3).propose(context, 3, None)
print("draft:", draft)
assert draft == [3, 9, 1] and distributions is None

# %% [markdown]
# `9 1 2` never occurred before. `1 2` occurred at the start, and `3 9 1` followed it.

# %% [markdown]
# ## Your turn: another draft
#
# Keep $p$, but let the draft be $q = [\tfrac12, 0, \tfrac12]$. Compute $\alpha$ and the residual as fractions. Each
# answer is checked as soon as you fill it in: write it in place of `None` and run the cell.

# %%
q_new = [F(1, 2), F(0), F(1, 2)]
my_alpha = None  # your answer, a fraction
my_residual = None  # your answer, a list of three fractions


def judge(name, answer, right, hint):
    """Say whether an answer is right, if there is one."""
    if answer is not None:
        same = np.shape(answer) == np.shape(right) and np.allclose(np.array(answer, dtype=float), right)
        print(f"{name}: right." if same else f"{name}: not yet. {hint}")


judge("alpha", my_alpha, acceptance_probability(p, q_new), "How much of each q(v) does p want too?")
judge("residual", my_residual, residual_distribution(p, q_new), "What does p lack, token by token? It must add up to 1.")

# %% tags=["solution"]
# Solution
my_alpha = sum(min(a, b) for a, b in zip(p, q_new))
lacking = [max(F(0), a - b) for a, b in zip(p, q_new)]
my_residual = [v / sum(lacking) for v in lacking]
print("alpha", my_alpha, "residual", [str(v) for v in my_residual])
assert my_alpha == F(3, 4) and my_residual == [0, 1, 0]

# %% [markdown]
# ## Your turn: a draft without chance
#
# Prompt lookup does not draw: it proposes $x$ with certainty, so its $q$ is 1 at $x$ and 0 elsewhere. For $x = 1$, with
# what probability is it kept, and what is the residual? Put both into words before you compute them.

# %%
my_certain_keep = None  # your answer, a fraction
my_certain_residual = None  # your answer, a list of three fractions
certain = np.eye(3)[1]
judge("kept", my_certain_keep, acceptance_probability(p, certain), "Every draw is x here: how often is x kept?")
judge("residual", my_certain_residual, residual_distribution(p, certain), "After a rejection x cannot come back; the others share by p. Fractions, or four decimals.")

# %% tags=["solution"]
# Solution
one_hot = [F(0), F(1), F(0)]
my_certain_keep = min(F(1), p[1] / one_hot[1])
lacking = [max(F(0), a - b) for a, b in zip(p, one_hot)]
my_certain_residual = [v / sum(lacking) for v in lacking]
print("kept with p(x) =", my_certain_keep, "; residual: p without x,", [str(v) for v in my_certain_residual])
assert my_certain_keep == F(1, 4) and my_certain_residual == [F(2, 3), 0, F(1, 3)]

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_hand_example` | the sampled case, with its two and three uniforms |
# | `test_hand_example_greedy` | the greedy case, with no draw |
# | `test_prompt_lookup_hand_example` | the lookup case |
# | `test_one_token_output_is_the_target_exactly` | the identity, on a larger case, every outcome enumerated |
#
# ## If you skip this
#
# The next chapter turns each step above into a line of `verify_draft`. You can follow it without this one, but keep
# these numbers near: they are the smallest case that can catch a wrong verifier. `ol start L8.6` hands you this module to
# build for yourself, and practice copies of these chapters with the solutions taken out; `ol tests L8.6` lists what will be
# asked of it.
#
# ## Going further
#
# - Leviathan, Kalman, Matias, *Fast Inference from Transformers via Speculative Decoding*, ICML 2023: the rule and its
#   proof.
# - Chen et al., *Accelerating Large Language Model Decoding with Speculative Sampling*, 2023: the same rule, found
#   independently.
# - Saxena, *Prompt Lookup Decoding*, 2023: copying as a draft.
