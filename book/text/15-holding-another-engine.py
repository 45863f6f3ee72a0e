# %% [markdown]
# # 15 Holding another engine to this one
#
# You will answer the course's shared vectors with a program of your own, follow a port in Rust through them, and catch a
# wrong draw that no emitted token shows.
#
# Somebody writes speculative decoding again, in another language, for another machine. Is it the same? Reading the code
# does not tell, and neither do a few equal texts. This chapter makes the question one that a command answers:
#
#     ol conform -- ANY PROGRAM
#
# It asks the program hundreds of small cases whose answers are stored in `tests/vectors`, and compares every answer, to the
# bit wherever the platform's exp and log allow it. You need chapters 08 and 09; the rest is Python that runs anywhere. Rust
# is read here and never written.

# %%
import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from fractions import Fraction as F
from itertools import product

import numpy as np

from ol.conform import Judge, hold, read
from ol.course import ROOT
from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer import vectors
from tinyllm.infer.sample import SamplingParams, choose, request_rng, sampling_distribution
from tinyllm.infer.spec import verify_draft
from tinyllm.prob.rejection import rejection_accept, residual_distribution
from tinyllm.prob.sampling import sample_categorical


def check(name, answer, right, hint):
    """Say at once whether an answer is right. An answer that is still None says nothing."""
    if answer is not None:
        print(f"{name}: right." if answer == right else f"{name}: not yet. {hint}")


# %% [markdown]
# ## A difference that no token shows
#
# The verifier draws two uniforms at every position it visits, $u_{accept}$ and $u_{resample}$. When a draft is kept, the
# second one is thrown away. That looks like waste, so here is a verifier that saves it: it draws $u_{resample}$ only
# after a rejection.

# %%
def verify_sparing(rows, draft_ids, draft_probs, p, history, rng, prompt=()):
    """As verify_draft, but u_resample is drawn on a rejection only."""
    if p.temperature == 0:
        return verify_draft(rows, draft_ids, draft_probs, p, history, rng, prompt)
    emitted = []
    for i, x in enumerate(draft_ids):
        target = sampling_distribution(rows[i], p, [*history, *emitted], prompt)
        q = np.eye(len(target))[x] if draft_probs is None else draft_probs[i]
        if not rejection_accept(target[x], q[x], rng.uniform()):
            return [*emitted, sample_categorical(residual_distribution(target, q), rng.uniform())], i
        emitted.append(x)
    return [*emitted, choose(rows[-1], p, [*history, *emitted], rng, prompt)], len(draft_ids)


# %% [markdown]
# **Predict:** does it still emit tokens with exactly the target's distribution? And does it emit the same tokens as
# `verify_draft` from the same seed?
#
# The first question is answered by enumeration, as in chapter 09. The draft is token 1, drawn from
# $q = [\tfrac14, \tfrac12, \tfrac14]$; the target has $p = [\tfrac12, \tfrac14, \tfrac14]$ at both positions. Both verifiers get
# every triple of uniforms from the middles of eight equal cells.

# %%
class Uniforms:
    """Replays a list of uniforms."""

    def __init__(self, values):
        self.values = list(values)

    def uniform(self):
        return self.values.pop(0)


p, q = [F(1, 2), F(1, 4), F(1, 4)], [F(1, 4), F(1, 2), F(1, 4)]
rows = np.log(np.array([p, p], dtype=float))
N = 8
middles = [(j + 0.5) / N for j in range(N)]


def outcomes(verify):
    """The exact probability of every emitted list, given that the draft is token 1."""
    counts = Counter()
    for draws in product(middles, repeat=3):
        emitted, _ = verify(rows, [1], np.array([q], dtype=float), SamplingParams(), [], Uniforms(draws))
        counts[tuple(emitted)] += 1
    return {emitted: F(count, N**3) for emitted, count in sorted(counts.items())}


ours, theirs = outcomes(verify_draft), outcomes(verify_sparing)
print("verify_draft  ", {emitted: str(share) for emitted, share in ours.items()})
print("verify_sparing", {emitted: str(share) for emitted, share in theirs.items()})
assert ours == theirs and sum(ours.values()) == 1

# %% [markdown]
# The same distribution, fraction by fraction. No statistical test can tell the two apart, however long it runs,
# because there is nothing wrong with what comes out on average. What is broken is the other promise: **same seed, same
# tokens.** One uniform fewer shifts every later draw of the request.
#
# Here are the uniforms of one request, in the order in which the generator gives them, and what each verifier uses them
# for. The first round keeps two drafts and adds a bonus; the second rejects its first draft.

# %%
ROUNDS = [["kept", "kept"], ["rejected"]]


def roles(sparing):
    """What each uniform of the request is used for, in order."""
    used = []
    for positions in ROUNDS:
        for outcome in positions:
            used.append("u_accept")
            if outcome == "rejected" or not sparing:
                used.append("u_resample" if outcome == "rejected" else "thrown away")
        if positions[-1] == "kept":
            used.append("bonus")
    return used


used = {"verify_draft": roles(False), "verify_sparing": roles(True)}
COLOURS = {"u_accept": "kept", "thrown away": "prompt", "u_resample": "correction", "bonus": "bonus"}
figure, (ax,) = new_figure(height=2.2)
for y, (name, row) in enumerate(used.items()):
    for x, role in enumerate(row):
        ax.barh(-y, 0.92, left=x + 0.04, height=0.62, color=PALETTE[COLOURS[role]])
        ax.text(x + 0.5, -y, role.replace(" ", "\n").replace("_", "\n"), ha="center", va="center", fontsize=7.5)
ax.set(yticks=[0, -1], yticklabels=list(used), xticks=[x + 0.5 for x in range(7)], xticklabels=range(1, 8),
       xlabel="uniform of the request, in order", xlim=(0, 7), ylim=(-1.5, 0.5))
show(figure, "From the second uniform on the two verifiers use the same numbers for different things: verify_draft throws "
             "it away, verify_sparing compares it with the second position's ratio.")
different = [i + 1 for i, (a, b) in enumerate(zip(*used.values())) if a != b]
print("uniforms with another use:", different)
assert different[0] == 2 and [len(row) for row in used.values()] == [7, 5]

# %% [markdown]
# So a test that compares emitted tokens is not enough. If position 2 keeps its draft either way, and the bonus comes
# out the same either way, the round looks right, and something goes wrong a hundred tokens later. The remedy is one more number
# in each answer: **`next_u32`, what the generator gives after the step.** If two engines drew a different number of times,
# their next numbers differ. A difference that would show up at some time shows up at once.
#
# ## What a case looks like
#
# A vector file is JSON with a head and cases, one case a line. This is the case that was made for the sparing verifier: every
# row of logits allows one token only, so whatever is drawn, the same tokens come out.

# %%
files = {section.name: section for section in read()}
verification = files["verification"]
silent = next(case for case in verification.cases if case["name"] == "1 kept, nothing else is possible")
for key, value in silent.items():
    print(f"{key:13}{json.dumps(value)}")
print("\nthe rule:", verification.rules[silent["rule"]])
assert silent["emitted"] == [0, 1]

# %% [markdown]
# Some keys are the question, some the answer, and the head says which: it lists each key of an answer, how it is compared, and what it
# means. `rule` names what the case is about, and the head says each rule in a sentence. Together **these sentences are the
# specification**, and the chapters explain it: read the rules of a file before you port its section. A program sees neither
# `rule` nor the answers.

# %%
print(files["context_ngram"].about)
for rule, text in files["context_ngram"].rules.items():
    print(f"    {rule}: {text}")

# %% [markdown]
# Four conventions hold everywhere, for questions and for answers:
#
# - **Floats** are written with as many digits as it takes to read the very same float64 back: 17 always do (`%.17g`). Logits are
#   exact float32 values. The sampler and the verifier compute in float64.
# - **What JSON cannot write is a string:** `"-inf"`, `"inf"`, `"nan"`, and every integer that may need 64 bits (`seed`, `seq`,
#   `state`, `inc`), because many JSON readers keep numbers as floats. `accepted` is `true` or `false`.
# - **`seed`** is a request's seed: the generator is `PCG32(seed).substream("sample")`, chapter 01's.
# - **`params`** always has all seven knobs of the sampler; chapter 05 is their order.
#
# The cell below lists the sections in the order in which to port them: each needs only what stands above it.

# %%
for name, section in files.items():
    asked = [key for key in section.asked(section.cases[0]) if key != "name"]
    answers = [f"{key}{'' if how == 'exact' else ' (' + how + ')'}" for key, (how, *_) in section.answers.items()]
    print(f"{name}, {len(section.cases)} cases\n    asked:   {', '.join(asked)}\n    answers: {', '.join(answers)}")
assert sum(len(section.cases) for section in files.values()) > 600

# %% [markdown]
# What each section means, as far as the keys do not say it:
#
# | section | to port it you must know |
# |---|---|
# | `exp_log` | exp of each `x`, log of each `y`. No engine fails here unless it is far off: it is how `ol conform` learns whose mathematical library you have |
# | `generator` | `PCG32(seed, seq)`, with the constants that the cell below prints; draw and drop `drawn_before` outputs; if `purpose` is not null, go on with that substream; then do each of `calls`: `["next_u32"]`, `["uniform"]`, `["below", n]`, or `["shuffle", n]`, which shuffles 0, 1, ... n − 1. `state` and `inc` are taken after that |
# | `categorical` | the inverse CDF of `p` at `u` (chapter 01) |
# | `rejection` | one step of chapter 03. `residual` is asked whether the draft is kept or not; where its sum is 0 it is $p$ |
# | `sampler` | draw `draws` tokens from the same logits, each joining `history` for the next. `kept` and `probs` describe the first draw's distribution: the ids above 0, ascending, and their probabilities. A log-probability is $(\ell_v - \max) - \log \sum_w e^{\ell_w - \max}$, rounded in this order |
# | `lookup` | chapter 10. No generator |
# | `context_ngram` | for the last `max_ngram` − 1 ids of the context, then for fewer, down to one: did they occur before, with an id after them? The first that did decides. The id that followed most often is drafted, of equals the lowest; it joins the context, and so on. (`ContextNGramDraft` in `tinyllm.infer.spec`.) No generator |
# | `ngram_draft` | a model of counts is given as a `table`: row $i$ holds logits after id $i$, so a softmax makes its distribution, at temperature 1 and without filters whatever the request says. `seed` null: no generator, so the argmax chain, and `probs` and `next_u32` are null. Where nothing is drafted `probs` is null too |
# | `verification` | chapter 09. `output` is what the request wrote before; `draft_probs` null means a deterministic draft |
# | `generation` | a whole request. The logits after a context are `rows[s]`: $s$ begins as 0, and each id of the context, prompt included, makes it $(3 s + \mathrm{id} + 1) \bmod R$ with $R$ the number of rows. `draft` is null for plain decoding, else its `kind` says which of the three drafts it is. A round is `[draft, kept, own token, "correction" or "bonus"]`; `cache_lengths` are positions in the cache after each round's rollback; `finish` is `"stop"` for an EOS id, else `"length"` |
#
# A request of `generation` ends at an EOS id, after `max_tokens` ids, or when prompt and ids together fill `max_len`; a prompt that fills
# it has no round at all.
#
# A row of `generation` depends on *every* id of the context and on their order. Read the context back from your own cache, and
# a rejected draft that stays there gives another row, as it would in a Transformer.
#
# Three things are left out because they are no business of an engine's arithmetic: text (tokenizers, stop strings, streaming), error
# messages, and how a model of counts is fitted.

# %%
from tinyllm.num import rng as generator

print(f"multiplier of a step  {generator.MULTIPLIER}")
print(f"of a substream        {generator.GOLDEN}")
print("numbers of purposes  ", generator.PURPOSES)

# %% [markdown]
# ## Answering
#
# The talk is as simple as it can be. The program gets one JSON object a line on its standard input: the case's keys, its
# `section`, and an `id`. It prints one JSON object a line: the keys of the answer, and the same `id`, in the same order. It ends when
# its input ends, with exit code 0. Whatever else it has to say goes to standard error. An integer may stand for a float, 1 for 1.0, but not the
# other way round; keys that nobody asked for are ignored. A case that it cannot answer gets the key `error` with a sentence, and
# counts as different.
#
# All questions are sent at once, so it may read ahead. It must hand over each answer before the command loses patience, which in most
# languages means to flush after each line. A line may have a million bytes.
#
# Here is a whole engine, for one section. `exp_log` is always asked as well, first; why, you will see below. The engine is
# Python, but it imports nothing of this course, and the command cannot see what language it is.

# %%
ENGINE = '''
import json, math, sys

def exp(x):
    return math.exp(float(x))  # float("-inf") reads what JSON cannot write

def lookup(ctx, k, max_ngram, min_ngram):
    for n in range(min(max_ngram, len(ctx)), min_ngram - 1, -1):
        for i in range(len(ctx) - n - 1, -1, -1):
            if ctx[i : i + n] == ctx[len(ctx) - n :]:
                return ctx[i + n : i + n + k]
    return []

for line in sys.stdin:
    case = json.loads(line)
    if case["section"] == "exp_log":
        answer = {"exp": [exp(x) for x in case["x"]], "log": [math.log(y) for y in case["y"]]}
    else:
        answer = {"draft": lookup(case["ctx"], case["k"], case["max_ngram"], case["min_ngram"])}
    print(json.dumps({"id": case["id"], **answer}), flush=True)
'''


def conform(program, *only, patience=20.0):
    """`ol conform --section ... -- python -c program`, as a function."""
    return hold([sys.executable, "-c", program], read(only=only), patience)


report = conform(ENGINE, "lookup")
for tally in report.tallies:
    print(f"{tally.section}: {tally.answered} answered, {tally.wrong} differ")
assert report.passed and [tally.section for tally in report.tallies] == ["exp_log", "lookup"]

# %% [markdown]
# **Predict:** what does `ol conform` say about a program that prints `loading the model...` first? About one that crashes in the
# middle? About one that never answers? It must never hang itself, and never count silence as agreement.
#
# `patience` is the seconds that may pass between two answers (the first answer may take three times as long).

# %%
chatty = "print('loading the model...')\n" + ENGINE
crashing = ENGINE.replace('case = json.loads(line)', 'case = json.loads(line)\n    if case["id"] == 40: sys.exit("out of memory")')
silent_one = "import time\ntime.sleep(60)"
faults = [conform(program, "lookup").fault for program in (chatty, crashing)]
faults.append(conform(silent_one, "lookup", patience=0.4).fault)
print("\n\n".join(faults))
assert all(fault.startswith("the program ") for fault in faults) and "1.2 seconds" in faults[2]

# %% [markdown]
# ## Your turn: a rule with a twin
#
# Another engine's lookup copies from the *earliest* occurrence. vLLM does, and for long drafts from periodic text it
# has its reasons. Change `my_lookup` so that it does that, and see what the vectors say about it. Then make it right
# again. Before you run it: which rule will be named?

# %%
def my_lookup(ctx, k, max_ngram, min_ngram):
    return []  # yours: first with the earliest occurrence, then with the most recent one


def first_difference(lookup):
    """The first case of the section that `lookup` answers otherwise, or None."""
    judge = Judge([files["lookup"]])
    for number, case in enumerate(files["lookup"].cases):
        judge.take(0, number, {"draft": lookup(case["ctx"], case["k"], case["max_ngram"], case["min_ngram"])})
    return judge.report.first


if my_lookup([1, 2, 1], 1, 3, 1):
    found = first_difference(my_lookup)
    print("right: every case agrees" if found is None else found.text())

# %% tags=["solution"]
# Solution
def lookup_from(starts):
    def lookup(ctx, k, max_ngram, min_ngram):
        for n in range(min(max_ngram, len(ctx)), min_ngram - 1, -1):
            for i in starts(len(ctx) - n):
                if ctx[i : i + n] == ctx[len(ctx) - n :]:
                    return ctx[i + n : i + n + k]
        return []

    return lookup


earliest = lookup_from(lambda end: range(end))
most_recent = lookup_from(lambda end: range(end - 1, -1, -1))
print(first_difference(earliest).text())
assert first_difference(earliest).rule == "most-recent" and first_difference(most_recent) is None

# %% [markdown]
# ## The port in Rust
#
# `ports/rust` is the whole road again in another language: generator, sampler, three drafts, verifier, loop, and a small JSON reader,
# without any dependency. The heart is this function. Read it beside chapter 09's.

# %%
PORT = ROOT / "ports" / "rust"
source = (PORT / "src" / "spec.rs").read_text(encoding="utf-8")
heart = source[source.index("pub fn verify_draft") :]
heart = heart[: heart.index("\n}\n") + 2]
print(heart)

# %% [markdown]
# What a port has to get right is seldom the idea. It is these:
#
# - **The draws are taken before anyone looks.** `let (u_accept, u_resample) = (rng.uniform(), rng.uniform());` Rust evaluates a tuple
#   from left to right. In C the order of evaluation of a call's arguments is not fixed, so there one writes two lines.
# - **The history grows with the kept drafts,** in one vector, and penalties at position $i$ see all of it.
# - **Integers wrap where the generator wants it:** `wrapping_mul`, and `rotate_right` for the rotation. A language that traps on
#   overflow, or promotes to floats, fails in the section `generator`.
# - **Sums run left to right.** `fold(0.0, |sum, x| sum + x)` does; a parallel or vectorised sum does not, and other bits come out.
# - **Nothing is fused.** A C compiler may make one rounding of $\ell - f \cdot c$, and by default does so for processors that can. Tell it
#   `-ffp-contract=off`, and never `-ffast-math`.
# - **Ties have an order.** The filters sort by logit with a *stable* sort over ascending ids; an unstable one picks another id among
#   equals. `argmax` must be the first of the largest: Rust's `max_by` would give the last.
# - **exp and log are the C library's.** On Linux Rust's `f64::exp` calls it, as Python's `math.exp` does.
#
# Where `cargo` is installed, the next cell builds the port and holds it to all the vectors.

# %% tags=["nbval-ignore-output"]
cargo = shutil.which("cargo")
if cargo is None:
    print("There is no cargo on this machine, so the port is not built here.")
else:
    subprocess.run([cargo, "build", "--offline", "--locked", "--quiet"], cwd=PORT, check=True, capture_output=True)
    binary = PORT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "conform"
    ported = hold([str(binary)], list(files.values()))
    print(ported.text())
    assert ported.passed and sum(tally.answered for tally in ported.tallies) > 600

# %% [markdown]
# ## Caught
#
# Now the sparing verifier, against the same vectors. `answered_by` is the package's own answer to a case, with one function
# exchanged.
#
# **Predict:** of the cases that it gets wrong, in how many does a wrong *token* show it?

# %%
def answered_by(verify, case):
    """The answer to a case of `verification` by a verifier."""
    case = vectors.revived(case)
    rng, rows, probs = request_rng(int(case["seed"])), np.array(case["logits"]), case["draft_probs"]
    probs = None if probs is None else np.array(probs).reshape(len(probs), rows.shape[1])
    params = SamplingParams(**case["params"])
    emitted, n = verify(rows, case["draft"], probs, params, case["output"], rng, case["prompt"])
    return {"emitted": [int(x) for x in emitted], "n_accepted": n, "next_u32": rng.next_u32()}


judge = Judge([verification])
in_tokens = in_count = 0
for number, case in enumerate(verification.cases):
    answer = answered_by(verify_sparing, verification.asked(case))
    judge.take(0, number, answer)
    if answer["emitted"] != case["emitted"]:
        in_tokens += 1
    elif answer["next_u32"] != case["next_u32"]:
        in_count += 1
print(judge.report.first.text())
print(f"\n{in_tokens} cases differ in a token, {in_count} in the count of draws alone")
assert judge.report.first.key == "next_u32" and judge.report.first.rule == "two-draws"
assert in_count > in_tokens > 0 and judge.report.tallies[0].wrong == in_tokens + in_count

# %% [markdown]
# The first difference is the silent case: right tokens, right number kept, and one number that cannot be argued with. The
# message names the rule, so the one who ports knows which line to look at.
#
# More cases show it by the count alone than by a token: most of the time the shifted uniforms choose the same tokens. Without
# `next_u32` those cases would have passed. A generator that is asked for one number too many or too few
# gives itself away at the next number, because its outputs are 32 bits long: two different places of the stream agree by
# chance once in $2^{32}$.

# %% [markdown]
# ## Your turn: build a silent case
#
# Write a case with two drafts on which both verifiers emit the same tokens for **every** seed, so that only `next_u32` tells them
# apart. Give `my_rows` (3 rows of 4 logits) and `my_draft` (2 ids). `-np.inf` may be a logit.
#
# <details><summary>Hint</summary>
#
# If a row allows one token only, its softmax is one-hot, whatever uniform it meets.
#
# </details>

# %%
my_rows = None  # for example [[0.0, 1.0, 2.0, 3.0], ...]
my_draft = None


def tells(rows, draft):
    """(do the tokens always agree?, does next_u32 always differ?) over fifty seeds, and for the extreme uniforms."""
    verifiers, results = (verify_draft, verify_sparing), []
    for seed in range(50):
        case = {"logits": rows, "draft": draft, "draft_probs": None, "params": silent["params"], "output": [], "prompt": []}
        results.append([answered_by(verify, {**case, "seed": str(seed)}) for verify in verifiers])
    agree = all(a["emitted"] == b["emitted"] for a, b in results)
    for draws in product((0.0, 1 - 2**-53), repeat=5):  # the smallest and the largest: two a draft, one for the bonus
        a, b = (verify(np.array(rows), draft, None, SamplingParams(), [], Uniforms(draws)) for verify in verifiers)
        agree = agree and a == b
    return agree, all(a["next_u32"] != b["next_u32"] for a, b in results)


if my_rows is not None and my_draft is not None:
    if np.shape(my_rows) != (3, 4) or len(my_draft) != 2 or not set(my_draft) <= {0, 1, 2, 3}:
        print("my case: not yet. It takes 3 rows of 4 logits and 2 ids from 0 to 3.")
    else:
        hint = "The tokens must agree and next_u32 must differ, for every seed there is."
        check("my case", tells(my_rows, my_draft), (True, True), hint)

# %% tags=["solution"]
# Solution
NO = -np.inf
my_rows = [[NO, 1.0, NO, NO], [NO, NO, 1.0, NO], [NO, NO, NO, 1.0]]
my_draft = [1, 2]
print(tells(my_rows, my_draft))
assert tells(my_rows, my_draft) == (True, True)
assert tells([[0.0] * 4] * 3, my_draft)[0] is False  # an open row: some seed shows it in the tokens
assert tells([[0.0, 8.0, 0.0, 0.0]] * 3, [1, 1])[0] is False  # nearly closed: fifty seeds may miss it, the extremes do not

# %% [markdown]
# ## When the bits may differ
#
# Everything up to here is additions, multiplications, divisions and comparisons, which IEEE 754 fixes to the bit. exp and log are
# not fixed: two C libraries may round the last bit differently. A comparison that demands bits everywhere would fail on the other library;
# one that allows "about equal" everywhere would let a real mistake pass. So `ol conform` asks first. The section `exp_log`
# holds arguments and results; if your library gives the same results, every later value must agree **to the bit**. If it does not,
# values that go through exp or log may be up to 8 units in the last place (**ulp**) off, and the report says by how many
# they are. In the list of sections above these are the keys marked `ulps`, and `logprob`: a log-probability is the difference of two
# logarithms and may be near 0, so its ulp are never counted finer than those of 1. Every other key is compared exactly.
#
# **Predict:** a port adds up its softmax from the right instead of the left. It agrees to within an ulp. Pass or fail?

# %%
def report_of(answer, *names):
    """The report for an engine that answers with `answer(section, case)`."""
    judge = Judge([files[name] for name in names])
    for at, section in enumerate(judge.sections):
        for number, case in enumerate(section.cases):
            judge.take(at, number, answer(section, case))
    return judge.report


def softmax_from(order):
    """The probabilities of a case of `sampler` whose filters are off, with the sum taken in some order."""

    def probs(case):
        logits = np.array([float(x) for x in case["logits"]]) / case["params"]["temperature"]
        powers = [math.exp(logit - logits.max()) for logit in logits]
        powers = [x for x in powers if x > 0]
        total = 0.0
        for x in order(powers):
            total += x
        return [x / total for x in powers]

    return probs


sampler = files["sampler"]
plain_cases = [case for case in sampler.cases if case["name"].startswith("plain, ")]
left, right = softmax_from(iter), softmax_from(reversed)
changed = sum(left(case) != right(case) for case in plain_cases)
furthest = max(abs(a - b) / np.spacing(max(a, b)) for case in plain_cases for a, b in zip(left(case), right(case)))
print(f"{len(plain_cases)} cases; another order of adding changes the bits: {changed > 0}, by a few ulp: {furthest <= 8}")
assert changed > 0 and furthest <= 8


def from_the_right(section, case):
    """The right answer, but for the order of the sum where no filter is on."""
    answer = {key: case[key] for key in section.answers}
    return {**answer, "probs": right(case)} if case in plain_cases else answer


found = report_of(from_the_right, "sampler").first
print(f"\n{found.section}, {found.name}, {found.key}\nthe rule: {found.rule_text}")
print(found.where.partition("ulp apart. ")[2])
assert found.rule == "rounding"

# %% [markdown]
# It fails, and it should: its library is the same, so the difference is its own, and the message says so. Does an ulp matter? It
# moves the edge between two tokens by about $10^{-16}$, and a uniform falls into such a gap once in $10^{16}$ draws: no test of
# tokens will ever find it. It is asked for because the right order costs nothing, and because a comparison that forgives an ulp
# here cannot tell it from the first trace of something worse, such as a sum in float32, whose gaps are $10^{-7}$ wide.
#
# Here is a whole report for an engine whose library rounds every exp up by one ulp. The probabilities that it goes
# on to compute are 1 ulp off as well.

# %%
def one_ulp_up(value):
    return [float(np.nextafter(x, np.inf)) if isinstance(x, float) and 0 < x < 1 else x for x in value]


def on_another_platform(section, case):
    answer = {key: case[key] for key in section.answers}
    return {key: one_ulp_up(value) if key in ("exp", "probs") else value for key, value in answer.items()}


elsewhere = report_of(on_another_platform, "exp_log", "sampler")
print(elsewhere.text())
assert elsewhere.passed and not elsewhere.same_library

# %% [markdown]
# ## Your turn: which excuse holds?
#
# Four engines answer the sections `exp_log` and `sampler`. For each, say whether `ol conform` passes it:
#
# - `a`: every exp and every probability is 3 ulp off;
# - `b`: exp and log agree with the files; the probabilities of one case are 1 ulp off;
# - `c`: every exp is 1 ulp off, and `next_u32` is off by one in one case;
# - `d`: exp and log are 1000 ulp off, as from a quick approximation.

# %%
my_verdicts = {"a": None, "b": None, "c": None, "d": None}  # True: passes


def moved(values, ulps):
    return [x + ulps * float(np.spacing(x)) if isinstance(x, float) else x for x in values]


def engine(exp_ulps=0, probs_ulps=0, one_case=False, next_off=0):
    """An engine that is off by so much, in one case of `sampler` or in all of them."""

    def answer(section, case):
        found = {key: case[key] for key in section.answers}
        if section.name == "exp_log":
            return {key: moved(values, exp_ulps) for key, values in found.items()}
        if not one_case or case is section.cases[3]:
            found["probs"] = moved(found["probs"], probs_ulps)
            found["next_u32"] += next_off
        return found

    return report_of(answer, "exp_log", "sampler").passed


really = {
    "a": engine(3, 3),
    "b": engine(0, 1, one_case=True),
    "c": engine(1, 1, one_case=True, next_off=1),
    "d": engine(1000, 0),
}
for name, answer in my_verdicts.items():
    check(name, answer, really[name], "Is the library the files' own? Does the value go through exp or log? By how much?")

# %% tags=["solution"]
# Solution
my_verdicts = {"a": True, "b": False, "c": False, "d": False}
print(my_verdicts)
assert my_verdicts == really
# a: another library, and within 8 ulp. b: the same library, so no excuse. c: a count of draws goes through no exp.
# d: no two libraries for float64 are so far apart.

# %% [markdown]
# ## Port it yourself
#
# The order that works is the order of the sections. Begin with `ol conform --section generator -- YOUR PROGRAM`: an afternoon in any
# language, and the first difference is shown in full each time. An engine that has only some sections is held to those that you
# name with `--section`. The files come from the package and are written by `python -m tinyllm.infer.vectors`; a test says when they are not fresh.
#
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_the_committed_files_are_what_the_package_answers_today` | the vectors are the package's own answers |
# | `test_the_package_itself_agrees_to_the_bit_or_says_how_far_its_platform_is_off` | Python is held by the same means as any other engine |
# | `test_ol_conform_passes_the_port` | the Rust port draws the same and emits the same, to the bit |
# | `test_a_planted_deviation_fails_and_its_rule_is_named` | each broken rule is caught and named |
# | `test_a_program_that_does_not_answer_as_agreed_gets_a_sentence` | hanging, dying, noise and disorder are failures with a reason |
# | `test_another_platforms_exp_and_log_pass_and_are_told_by_ulps` | the platform's library is named, never hidden |
#
# ## If you skip this
#
# Nothing in the book stands on this chapter. You will want it on the day you write the verifier again, for a GPU or in another
# language, or change a sum for speed and wonder what else you changed.
#
# ## Going further
#
# - O'Neill, *PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number Generation*, 2014: the
#   generator, with implementations in several languages to compare with yours.
# - He and Thinking Machines Lab, *Defeating Nondeterminism in LLM Inference*, 2025: why the rows of logits themselves differ between
#   engines, which these vectors leave out by giving the logits.
# - vLLM: its rejection sampler finds the replacement in another way, from exponential draws. It has the same distribution, and
#   would fail the first sampled case here, as the sparing verifier does. Same law, other draws.
# - DeMillo, Lipton and Sayward, *Hints on Test Data Selection*, 1978: planted mistakes as the measure of a set of cases; the vectors
#   were built that way.
