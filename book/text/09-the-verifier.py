# %% [markdown]
# # 09 The verifier
#
# You will build `verify_draft` rule by rule, and prove by enumerating every outcome that what it emits has exactly the
# target's distribution.
#
# The verifier gets the target's logits for $m + 1$ positions, the $m$ draft ids, and what the draft says about how it
# drew them. It returns the tokens to emit and how many drafts it kept. In symbols: $x_1, \dots, x_m$ are the draft ids, $p_i$
# is the target's distribution at position $i$, after everything before $x_i$, and $q_i$ is the one that $x_i$ was drawn from.

# %%
from fractions import Fraction as F
from itertools import product

import numpy as np

import ol
from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.sample import SamplingParams, choose, request_rng, sampling_distribution
from tinyllm.infer.spec import verify_draft
from tinyllm.info.entropy import total_variation
from tinyllm.num.rng import PCG32
from tinyllm.prob.rejection import speculative_step

greedy, plain = SamplingParams(temperature=0), SamplingParams()

# %% [markdown]
# ## Rule 1: greedy
#
# Keep drafts while they equal the target's own choice. At the first mismatch emit the target's choice and stop. After
# $m$ matches emit the target's next choice, the bonus.
#
# **Predict:** can this ever emit a token that plain greedy decoding would not?

# %%
def verify_greedy(rows, draft_ids):
    """rows [m + 1, V], m draft ids -> (emitted, accepted)."""
    emitted = []
    for row, x in zip(rows, draft_ids):
        emitted.append(int(np.argmax(row)))
        if emitted[-1] != x:
            return emitted, len(emitted) - 1
    return [*emitted, int(np.argmax(rows[-1]))], len(draft_ids)


rows = np.array([[0.0, 1, 3], [2, 1, 0], [0, 5, 1]])
print(verify_greedy(rows, [2, 1]), verify_greedy(rows, [2, 0]))
assert verify_greedy(rows, [2, 1]) == ([2, 0], 1) and verify_greedy(rows, [2, 0]) == ([2, 0, 1], 2)

# %% [markdown]
# No: every token it emits is an argmax of a target row, and row $i$ is used only if everything before it was what the
# target chose. The draft decides how many tokens a pass gives, never which.
#
# ## Rule 2: one sampled position
#
# The draft drew $x \sim q$. Keep it with probability $\min(1, p(x)/q(x))$; otherwise draw from
# $r = \max(0, p - q)/Z$. `speculative_step` does this with two uniforms. Enumerate it: let both uniforms run over the
# midpoints $(j + \tfrac12)/N$. If every threshold is a multiple of $1/N$, counting midpoints measures each interval
# exactly, so the counts are probabilities, as fractions.

# %%
p = np.array([0.5, 0.25, 0.25])
q = np.array([0.25, 0.5, 0.25])
N = 8
midpoints = [(j + 0.5) / N for j in range(N)]


def output_distribution(step):
    """Exact distribution of step(x, u_accept, u_resample) when x ~ q and both uniforms run over the midpoints."""
    out = [F(0)] * len(p)
    for x, u, v in product(range(len(p)), midpoints, midpoints):
        out[step(x, u, v)] += F(q[x]) / N**2
    return out


exact = output_distribution(lambda x, u, v: speculative_step(p, q, x, u, v)[0])
print("emitted:", [str(v) for v in exact])
assert exact == [F(v) for v in p]

# %% [markdown]
# Exactly $p$. Now break the rule in the most natural way: after a rejection, draw from $p$ itself instead of the
# residual. **Predict** which tokens come out too often.

# %%
def resample_from_p(x, u, v):
    if u < p[x] / q[x]:
        return x
    return int(np.searchsorted(np.cumsum(p), v, side="right"))


wrong = output_distribution(resample_from_p)
print("wanted: ", [str(F(v)) for v in p])
print("emitted:", [str(v) for v in wrong])
assert wrong != exact and wrong[1] > exact[1] and sum(wrong) == 1
assert wrong[2] > exact[2] and p[2] == q[2]

# %% [markdown]
# Tokens 1 and 2. Token 2 too, although the draft gives it just what the target does: it is always kept when it is proposed, which is
# already all of its $\tfrac14$, and now it also gets a quarter of the replacements, $\tfrac14 \cdot \tfrac14 = \tfrac1{16}$.

# %%
figure, (ax,) = new_figure()
ids = np.arange(3)
ax.bar(ids - 0.25, p, 0.25, color=PALETTE["target"], label="target p")
ax.bar(ids, [float(v) for v in exact], 0.25, color=PALETTE["kept"], label="residual after a rejection")
ax.bar(ids + 0.25, [float(v) for v in wrong], 0.25, color=PALETTE["rejected"], label="p after a rejection")
ax.set(xticks=ids, xlabel="token", ylabel="probability emitted", ylim=(0, 0.7))
ax.legend(frameon=False, fontsize=8)
show(figure, "Replacing from the residual gives 1/2, 1/4, 1/4, as the target wants; replacing from p gives 3/8, 5/16, "
             "5/16: too little of token 0, too much of the two others.")
assert wrong == [F(3, 8), F(5, 16), F(5, 16)]

# %% [markdown]
# ### The proof
#
# Token $v$ is emitted if it was proposed and kept, or if a rejection was replaced by it:
#
# $$P(v) = q(v)\min\left(1, \tfrac{p(v)}{q(v)}\right) + (1 - \alpha)\, r(v) = \min(q(v), p(v)) + \max(0, p(v) - q(v)) = p(v).$$
#
# Where $q(v) = 0$ the token is never proposed, and the first part is 0, as $\min(q, p)$ says.
# The middle step uses $1 - \alpha = 1 - \sum_v \min(p, q) = \sum_v \max(0, p - q) = Z$, for
# $p - \min(p, q) = \max(0, p - q)$ at every token. If $Z = 0$, then $p = q$, nothing is ever rejected, and there is no residual
# to draw from. Nothing asks $q$ to be good. A bad draft is rejected more often; it is never wrong.
#
# And how often is it kept? With probability $\alpha = \sum_v \min(p(v), q(v)) = 1 - \mathrm{TV}(p, q)$, the overlap of the two
# distributions (chapter 02 has the step between the two). The cell below asks for it in three
# ways: by the formula, by the distance, and by counting what `speculative_step` keeps.

# %%
by_overlap = sum(min(F(a), F(b)) for a, b in zip(p, q))
by_distance = 1 - F(total_variation(p, q))
kept = F(0)
for x, u, v in product(range(3), midpoints, midpoints):
    kept += speculative_step(p, q, x, u, v)[1] * F(q[x]) / N**2
print("alpha:", by_overlap, "; 1 - TV:", by_distance, "; counted:", kept)
assert by_overlap == by_distance == kept == F(3, 4)

# %% [markdown]
# ## Rule 3: a draft that does not draw
#
# Prompt lookup proposes $x$ with certainty. That is a draw from the one-hot $q = e_x$, so nothing new has to be proved:
# $\min(1, p(x)/q(x))$ is $p(x)$, and $\max(0, p - e_x)$ is $p$ with $x$ taken out. Keep $x$ with probability $p(x)$, otherwise
# draw from $p$ without $x$, renormalised. **Predict:** if the draft always says token 1, how often does 1 come out?

# %%
for x in range(3):
    one_hot = np.eye(3)[x]
    out = [F(0)] * 3
    for u, v in product([(j + 0.5) / 24 for j in range(24)], repeat=2):
        out[speculative_step(p, one_hot, x, u, v)[0]] += F(1, 24**2)
    print("always propose", x, "->", [str(v) for v in out])
    assert out == [F(v) for v in p]

# %% [markdown]
# As often as the target wants it, $\tfrac14$, although it was proposed every time.
#
# ### Rule 1 again, as a limit
#
# Lower the temperature and $p$ piles up on the largest logit. **Predict:** what becomes of the two acceptance
# probabilities, for a draft that says the argmax and for one that says something else?

# %%
row = np.array([0.0, 1, 3])
for temperature in (1, 0.5, 0.2, 0.1, 0):
    cold = sampling_distribution(row, SamplingParams(temperature=temperature))
    print(f"temperature {temperature:3}: draft 2 is kept with {cold[2]:.6f}, draft 1 with {cold[1]:.6f}")
assert cold.tolist() == [0, 0, 1]

# %% [markdown]
# One and zero: the argmax is always kept, anything else is always replaced, and the residual is the argmax alone. That is
# rule 1. At temperature 0 itself there is nothing left to chance, so the verifier draws no uniforms at all. (Where two logits
# are equal the limit would share between them; the rule takes the lower id.)
#
# ## Rule 4: several positions
#
# Position $i$ is the same step with $p_i$, the target's distribution after the drafts before it, and it is reached only
# if they were all kept.
#
# **Claim.** However long the drafts are, so long as it is settled before a draft token is drawn that it will be proposed, the tokens
# $y_1, y_2, \dots$ that come out, round after round, have the
# distribution of plain decoding: $P(y_1, \dots, y_t) = \prod_{j \le t} p(y_j \mid y_1, \dots, y_{j-1})$ for every $t$.
#
# **Proof**, by induction on $t$. For $t = 0$ there is nothing to show. Suppose that $y_1, \dots, y_{t-1}$ have come out, and look
# at the step that makes $y_t$. There are two cases, and what happened before decides which one it is.
#
# - *A draft token is waiting at this place.* Everything before it in its round was kept, so the target's row is the one
#   after $y_1, \dots, y_{t-1}$. The draft token was drawn from its $q$, a distribution that depends on the context and on the
#   drafts before it, which are $y$'s now; and that those were kept says nothing about it, for other uniforms decided that.
#   The two uniforms of this position are fresh. By rule 2 the token that comes out has the distribution
#   $p(\cdot \mid y_1, \dots, y_{t-1})$, kept or replaced.
# - *None is waiting.* The round's drafts are used up, and the bonus is a plain draw from that same row. (The token after a
#   replacement belongs to the next round, which drafts anew from the context as it is, so it is one of these two cases.)
#
# In both cases $P(y_t \mid y_1, \dots, y_{t-1}) = p(y_t \mid y_1, \dots, y_{t-1})$; multiply by the induction hypothesis. $\square$
#
# The first case is why the target's rows must be those *after the draft prefix*, and why nothing of a rejected draft may
# be used again: a token that was proposed and refused is no longer a fresh draw.
#
# It is also where the claim's condition is used. Take a drafter that draws a token, looks at it, and withholds it when it does not
# like it. The token that waits was then not drawn from $q$, but from what the drafter lets through. **Predict** for
# $p = q = [\tfrac12, \tfrac12]$ and a drafter that proposes token 0 and withholds token 1: how often does 0 come out?

# %%
fair = [F(1, 2), F(1, 2)]
emitted = [F(0), F(0)]
for drawn in range(2):
    if drawn == 0:  # proposed, and p(0) / q(0) = 1: always kept
        emitted[0] += fair[0]
    else:  # withheld: nothing waits, and the target draws by itself
        emitted = [e + fair[1] * own for e, own in zip(emitted, fair)]
print("emitted:", [str(e) for e in emitted])
assert emitted == [F(3, 4), F(1, 4)]

# %% [markdown]
# Three times in four. So a drafter that stops where it is unsure must decide from what it knew *before* the draw; or it
# proposes the token that made it unsure, and stops after it.
#
# Here is the proof as a program. `tokens` follows every branch, with its probability as a fraction: kept, replaced, bonus,
# next round. Vocabulary 2, drafts of up to three tokens, a target and a draft that both look at the last token.

# %%
P = {0: [F(1, 3), F(2, 3)], 1: [F(3, 4), F(1, 4)]}  # the target after 0 and after 1
Q = {0: [F(3, 5), F(2, 5)], 1: [F(1, 2), F(1, 2)]}  # the draft


def tokens(last, wanted, k, left):
    """The law of the next `wanted` tokens after `last`, with `left` drafts left in a round of k: tuple -> fraction."""
    if wanted == 0:
        return {(): F(1)}
    p_i, q_i, ways = P[last], Q[last], []  # ways: (probability, token, drafts left afterwards)
    for v in range(2):
        if left == 0:
            ways.append((p_i[v], v, k))  # the bonus, then a new round
        else:
            ways.append((min(p_i[v], q_i[v]), v, left - 1))  # proposed and kept: the next position
            ways.append((max(F(0), p_i[v] - q_i[v]), v, k))  # 1 - alpha times the residual, then a new round
    out = {}
    for chance, v, next_left in ways:
        for rest, more in tokens(v, wanted - 1, k, next_left).items():
            out[v, *rest] = out.get((v, *rest), F(0)) + chance * more
    return out


def target_alone(last, wanted):
    """The law of plain decoding."""
    if wanted == 0:
        return {(): F(1)}
    return {(v, *rest): P[last][v] * more for v in range(2) for rest, more in target_alone(v, wanted - 1).items()}


for k in range(4):
    assert tokens(0, 6, k, k) == target_alone(0, 6)
print("64 texts of six tokens, k = 0, 1, 2, 3: every probability equal, as fractions")
print("for example 0 1 1 0 1 0:", tokens(0, 6, 3, 3)[0, 1, 1, 0, 1, 0])

# %% [markdown]
# `choose` is what plain decoding does at a position (chapter 05 builds it): the largest penalised logit at temperature 0, else one draw
# with one uniform. Two more things belong to a position. Penalties look at the history, and **the history includes the drafts kept so far
# in this round**. And the order of draws is fixed: per position $u_{accept}$, then $u_{resample}$, always both; then one
# uniform for the bonus.

# %%
def my_verify(rows, draft_ids, draft_probs, params, history, rng, prompt=()):
    """rows [m + 1, V]; draft_probs [m, V] or None -> (emitted, accepted)."""
    emitted = []
    for i, x in enumerate(draft_ids):
        past = [*history, *emitted]
        if params.temperature == 0:
            token = choose(rows[i], params, past, None, prompt)
            kept = token == x
        else:
            p_i = sampling_distribution(rows[i], params, past, prompt)
            q_i = np.eye(rows.shape[1])[x] if draft_probs is None else draft_probs[i]
            token, kept = speculative_step(p_i, q_i, x, rng.uniform(), rng.uniform())
        emitted.append(token)
        if not kept:
            return emitted, i
    return [*emitted, choose(rows[-1], params, [*history, *emitted], rng, prompt)], len(draft_ids)


# %% [markdown]
# Is a whole round exact, the bonus included? Enumerate it: two drafts and five uniforms. The target's second row depends
# on the first draft, as it does in a real pass. **Predict:** among the outcomes that kept both drafts, what distribution
# does the third token have?

# %%
class Replay:
    """Hands out given uniforms in order."""

    def __init__(self, uniforms):
        self.left = iter(uniforms)

    def uniform(self):
        return next(self.left)


p1, q1 = p, q
p2 = np.array([[0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]])  # row x: the target after x
q2 = np.array([0.5, 0.25, 0.25])
p3 = np.array([0.25, 0.25, 0.5])  # the target after any two tokens
quarters = [(j + 0.5) / 4 for j in range(4)]

first, pairs, third = [F(0)] * 3, np.full((3, 3), F(0)), [F(0)] * 3
for x1, x2 in product(range(3), repeat=2):
    rows = np.log(np.array([p1, p2[x1], p3]))  # [3, V]
    for uniforms in product(quarters, repeat=5):
        emitted, accepted = my_verify(rows, [x1, x2], np.array([q1, q2]), plain, [], Replay(uniforms))
        weight = F(q1[x1]) * F(q2[x2]) / 4**5
        first[emitted[0]] += weight
        if accepted >= 1:
            pairs[emitted[0], emitted[1]] += weight
        if accepted == 2:
            third[emitted[2]] += weight

print("first token:", [str(v) for v in first])
assert first == [F(v) for v in p1]
for x in range(3):
    given = [v / pairs[x].sum() for v in pairs[x]]
    print("second token after a kept", x, "->", [str(v) for v in given])
    assert given == [F(v) for v in p2[x]]
print("third token after two kept:", [str(v / sum(third)) for v in third])
assert [v / sum(third) for v in third] == [F(v) for v in p3]

# %% [markdown]
# Each position follows its own row: $p_1$, then $p_2$ after the token that was kept, then the bonus row. The bonus needs
# no correction, since no draft guessed it: it is a plain draw from row $m$.
#
# The penalty rule has a case you can check by eye. Every row is `[2, 1.6, 0.3]`, each occurrence of a token costs 1, and
# decoding is greedy. **Predict** what happens to the draft `[0, 1, 0, 1]`.

# %%
same_rows = np.tile([2.0, 1.6, 0.3], (5, 1))
fading = SamplingParams(temperature=0, frequency_penalty=1.0)
print(my_verify(same_rows, [0, 1, 0, 1], None, fading, [], None))
assert my_verify(same_rows, [0, 1, 0, 1], None, fading, [], None) == ([0, 1, 0, 1, 2], 4)

# %% [markdown]
# All four are kept: 0 wins, its logit falls to 1, so 1 wins, and so on, until 2 is what is left. A verifier whose
# penalties see only the history before the round would reject the second token.

# %% [markdown]
# ### Filters and penalties change p, and nothing else
#
# Penalties, temperature, top-k, top-p and min-p turn a row of logits into the distribution that plain decoding would draw
# from. The proof never asked where $p_i$ comes from; so if the verifier uses *that* distribution, after penalties for the
# history as it is at this position and after the filters, the output is again plain decoding's. The draft's $q$ need not
# have seen any filter. What the filters leave out has $p_i = 0$: it is never kept, since $u < 0$ is false, and never a
# replacement, since $\max(0, 0 - q)$ is 0.
#
# **Predict:** $p = [0.6, 0.35, 0.05]$ with min-p 0.1 leaves out token 2, which is below $0.1 \cdot 0.6$. A draft insists on
# token 2. What comes out, and how often?
#
# And a second case, without min-p: the target's weights are 4, 3 and 1 (its logits are their logarithms), the presence
# penalty, which is taken from the logit of every token that has occurred, is $\ln 2$, the history holds a 0, and the draft insists on token 0. With which probability does each token come out?

# %%
def first_token_law(row, params, history, draft_id, accept_cells, resample_cells):
    """What my_verify emits first for a deterministic draft: every outcome, as fractions."""
    out = [F(0)] * len(row)
    for a, r in product(range(accept_cells), range(resample_cells)):
        uniforms = Replay([(a + 0.5) / accept_cells, (r + 0.5) / resample_cells, 0.5])
        emitted, _ = my_verify(np.array([row, row]), [draft_id], None, params, history, uniforms)
        out[emitted[0]] += F(1, accept_cells * resample_cells)
    return out


filtered = first_token_law(np.log([0.6, 0.35, 0.05]), SamplingParams(min_p=0.1), [], 2, 4, 19)
print("min-p:   ", [str(v) for v in filtered], "wanted 0.6 and 0.35, over 0.95")
assert filtered == [F(60, 95), F(35, 95), 0]
penalised = first_token_law(np.log([4.0, 3, 1]), SamplingParams(presence_penalty=np.log(2)), [0], 0, 6, 4)
print("presence:", [str(v) for v in penalised], "wanted 4/2, 3 and 1, over 6")
assert penalised == [F(2, 6), F(3, 6), F(1, 6)]

# %% [markdown]
# What plain decoding would draw, both times. Under min-p token 2 is never kept, and the two others share its place in the ratio
# 0.6 to 0.35. The penalty takes $\ln 2$ from the logit of 0, which halves its weight: 2, 3 and 1, over their sum 6.
#
# ## Rule 5: look before you judge
#
# One row too few makes no sound. Is it the first that is missing, every position is judged by the wrong row; is it the last, the
# bonus is drawn from one. So shapes are checked first:
# $m$ drafts need $m + 1$ rows of logits and, if they were drawn, $m$ rows of distributions; ids lie in the vocabulary.
#
# The target gives two rows over three tokens. **Predict** for each call below: does it pass, and if not, what is wrong?

# %%
two_rows, no_draw = np.zeros((2, 3)), None
calls = [([1, 2], no_draw), ([1], np.full((2, 3), 1 / 3)), ([2], no_draw), ([3], no_draw)]
passed, refusals = [], []
for draft_ids, draft_probs in calls:
    try:
        print(draft_ids, "gives", verify_draft(two_rows, draft_ids, draft_probs, greedy, [], None))
        passed.append(draft_ids)
    except ValueError as error:
        print(draft_ids, "is refused")
        refusals.append(error)
assert passed == [[2]]

# %% tags=["nbval-ignore-output"]
print(*refusals, sep="\n")  # the sentences are the implementation's own
assert len(refusals) == 3

# %% [markdown]
# Only the third passes: one draft, two rows, and 2 is the last id of a vocabulary of three. It is not kept, but that is
# a verdict on the draft, not on the call.
#
# Put these looks in front of your verifier, and it is done. `ol.check` hands it to the course's own tests, in the place of
# the package's, and shows what they say.

# %% tags=["nbval-ignore-output"]
def my_verify_draft(target_logits, draft_ids, draft_probs, p, history, rng, prompt=()):
    """my_verify, after a look at what it was given."""
    rows, m = np.asarray(target_logits), len(draft_ids)
    if rows.ndim != 2 or len(rows) != m + 1:
        raise ValueError(f"{m} draft ids need {m + 1} rows of logits, not an array of shape {rows.shape}.")
    if draft_probs is not None and np.shape(draft_probs) != (m, rows.shape[1]):
        raise ValueError(f"draft_probs must be {m} rows over {rows.shape[1]} tokens, not {np.shape(draft_probs)}.")
    if not all(0 <= x < rows.shape[1] for x in draft_ids):
        raise ValueError(f"draft ids must lie in [0, {rows.shape[1]}), and they are {list(draft_ids)}.")
    return my_verify(rows, draft_ids, draft_probs, p, history, rng, prompt)


verdict = ol.check("L8.6", verify_draft=my_verify_draft)
assert verdict
verdict

# %% [markdown]
# ## The same as the package
#
# `tinyllm.infer.spec.verify_draft` is this function. Compare the two, draws included: after each call
# the generators must stand at the same place. The parameters vary too: `top_k` lets only the $k$ largest logits be
# drawn (0 lets all), and `repetition_penalty` weakens every token that has already occurred (1 changes nothing).

# %%
numbers = PCG32(9).substream("shuffle")
plainest = 0  # sampled, from a draft that drew, with every token allowed
for seed in range(200):
    m, V = numbers.below(4), 2 + numbers.below(6)
    rows = numbers.uniforms((m + 1) * V).reshape(m + 1, V) * 4
    draft_ids = [numbers.below(V) for _ in range(m)]
    draft_probs = None
    if numbers.below(2):
        weights = numbers.uniforms(m * V).reshape(m, V) + 0.01
        draft_probs = weights / weights.sum(axis=1, keepdims=True)
    params = SamplingParams(
        temperature=numbers.below(3) / 2, top_k=numbers.below(4), repetition_penalty=1 + numbers.below(5) / 10
    )
    history, prompt = [numbers.below(V) for _ in range(3)], [numbers.below(V)]
    mine, theirs = request_rng(seed), request_rng(seed)
    a = my_verify_draft(rows, draft_ids, draft_probs, params, history, mine, prompt)
    b = verify_draft(rows, draft_ids, draft_probs, params, history, theirs, prompt)
    assert a == b and mine.state() == theirs.state()
    plainest += m > 0 and draft_probs is not None and params.temperature > 0 and params.top_k == 0
print("200 random cases: the same tokens, the same number of draws")
print(plainest, "of them sampled against a drawn draft with every token allowed")
assert plainest > 5

# %% [markdown]
# ## Your turn: whose distribution?
#
# A verifier that ignores `draft_probs` and takes $q = p$ keeps every draft, since $p/p = 1$. Compute the exact
# distribution it emits, with `output_distribution`. Then look at your three numbers: whose are they?

# %%
my_answer = None  # your answer, a list of three fractions
if my_answer is not None:
    right = [F(0)] * 3  # the package's verifier, told that the draft drew from p
    for x, u, v in product(range(3), midpoints, midpoints):
        right[verify_draft(np.log([p, p]), [x], [p], plain, [], Replay([u, v, 0.5]))[0][0]] += F(q[x]) / N**2
    if list(my_answer) == right:
        print("Right: that is what such a verifier emits.")
    elif sum(my_answer) != 1:
        print("Not yet: the three do not add up to 1.")
    elif list(my_answer) == [F(v) for v in p]:
        print("Not yet: that is what a correct verifier emits.")
    else:
        print("Not yet: a distribution, but not the one that comes out.")

# %% tags=["solution"]
# Solution
my_answer = output_distribution(lambda x, u, v: speculative_step(p, p, x, u, v)[0])
print([str(v) for v in my_answer], "- the draft's distribution, not the target's")
assert my_answer == [F(v) for v in q]

# %% [markdown]
# ## Your turn: count the draws
#
# Three drafts are proposed, the first is kept and the second rejected. How many uniforms has the verifier drawn? And if
# all three are kept?

# %%
rejected_second = None  # your answer, a number
all_kept = None  # your answer, a number


class Counting:
    """Gives 0.5 whenever it is asked, and counts."""

    drawn = 0

    def uniform(self):
        self.drawn += 1
        return 0.5


def draws(*wanted):
    """How many uniforms `verify_draft` takes when each draft is token 0, and the target wants it or does not."""
    source = Counting()
    rows = [[9.0, 0.0] if yes else [0.0, 9.0] for yes in (*wanted, True)]  # [m + 1, V]
    verify_draft(rows, [0] * len(wanted), None, plain, [], source)
    return source.drawn


if rejected_second is not None:
    right = rejected_second == draws(True, False, True)
    print("second rejected:", "right." if right else "not yet. Which positions does the verifier visit?")
if all_kept is not None:
    right = all_kept == draws(True, True, True)
    print("all kept:", "right." if right else "not yet. What comes after the last position?")

# %% tags=["solution"]
# Solution
rejected_second = 2 + 2  # two per position visited, and no bonus
all_kept = 3 * 2 + 1  # two per position, one for the bonus
print(rejected_second, all_kept)
assert (rejected_second, all_kept) == (draws(True, False, True), draws(True, True, True)) == (4, 7)

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_hand_example`, `test_hand_example_greedy` | draws in order, greedy without draws |
# | `test_one_token_output_is_the_target_exactly` | rule 2, enumerated |
# | `test_two_token_draft_is_exact_at_each_position` | rule 4 |
# | `test_the_output_is_p_for_any_p_and_q` | the proof, on $p$ and $q$ that a search tries to break |
# | `test_case_05_filters_apply_to_every_row` | filters, at every position and in the bonus row |
# | `test_deterministic_draft_is_exact` | rule 3, also for a token that the target never emits |
# | `test_penalties_see_the_accepted_drafts` | the history of a position |
# | `test_the_bonus_follows_the_row_after_the_last_draft` | the bonus |
# | `test_verify_checks_shapes` | rule 5 |
#
# ## If you skip this
#
# The chapters on drafts, rollback and speed use `verify_draft` as it stands. An engine you port it to must draw in the
# same order, or its tokens will differ. To write your own from an empty file: `ol start L8.6`, then `ol check L8.6`.
#
# ## Going further
#
# - Leviathan, Kalman, Matias (2023), algorithm 1, appendix A.1, and section 3.2 for $\alpha = 1 - \mathrm{TV}$.
# - Chen et al., *Accelerating Large Language Model Decoding with Speculative Sampling*, 2023, theorem 1.
# - vLLM keeps a token when $p(x)/q(x) \ge u$ and finds replacements without normalising; transformers samples from the target
#   and compares where $q$ is unknown. Chapter 14 shows what the second costs.
# - Sun et al., *Block Verification Accelerates Speculative Decoding*, 2024: judging the whole draft at once keeps more of
#   it, still exactly.
