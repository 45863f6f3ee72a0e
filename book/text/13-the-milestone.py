# %% [markdown]
# # 13 The milestone
#
# You will run SmolLM2, a real model, with three drafts on seven kinds of text, and check that its output stays the same
# to the bit while the number of passes falls.
#
# This chapter needs the model's file. Where it is missing, the first code cell fetches it once, if there is a network. If
# that fails too, the cell stops with Python's traceback, and the traceback's last line is one sentence: why there is no
# model and what to do.

# %% tags=["needs-model", "nbval-ignore-output"]
import sys
import time

import numpy as np
from tqdm import tqdm

from tinyllm import smollm2, smollm2_text
from tinyllm.explore import acceptance, draft_shape, live
from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.generate import generate
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import ModelDraft, speculative_generate
from tinyllm.zoo import smollm2 as load_smollm2

model, tok = load_smollm2()
print(model.n_layers, "layers,", model.vocab_size, "tokens")
assert (model.n_layers, model.vocab_size) == (30, 49152)

# %% [markdown]
# ## Seven requests
#
# They range from copying a text to answering a question. Each is continued by 32 tokens at temperature 0, so there is
# exactly one right output: the one plain decoding gives. On purpose no `eos_ids` are given: every run has 32 tokens and
# can be compared with every other, even where the model would have ended earlier.

# %%
requests = smollm2.requests(tok)
greedy = SamplingParams(temperature=0, max_tokens=32)
plain = {}
for name, prompt in requests.items():
    plain[name] = generate(model, tok, prompt, greedy)
    print(f"{name:18}", repr(plain[name].text[:70]))
assert all(len(result.rounds) == len(result.ids) == 32 for result in plain.values())

# %% [markdown]
# Look at what the model does rather than at what it was asked. The quotation is a copy. The code request became a loop,
# the same line again and again, and so did the multilingual one after a few words of bad Spanish. The list counts on: its
# pattern repeats, but the names and numbers are new each time. Arithmetic changes the subject, reaches `<|im_end|>`, where
# a chat would stop, and goes on into a turn that nobody asked for. Prose and chat repeat little.

# %% [markdown]
# ## A text for the n-gram draft
#
# An n-gram draft needs a text to count, and the best one is a text that the target itself writes. The repository holds
# one: SmolLM2's continuations of prompts that are *not* among the requests, for a draft that had seen the answers would
# flatter itself. The request's own prompt is added to it, since every draft may see that.

# %%
texts = smollm2.training_ids()
print(len(texts), "continuations,", sum(map(len, texts)), "tokens to count")
assert not {entry["prompt"] for entry in smollm2_text.read()} & set(requests.values())

# %% [markdown]
# ## How many layers make a draft?
#
# No smaller model shares SmolLM2's vocabulary, so the model draft is SmolLM2 cut short: its first $N$ layers, then its
# own last norm and head. **Predict:** with half of the layers, how often is the first guess right?
#
# One pass over a finished text tells: at every place, does the cut model's largest logit name the token that the whole
# model chose? The cost is counted in weights read, as a share of a whole pass: chapter 12's $c$.

# %%
def layer_agreement(n: int) -> float:
    """The share of places where the first `n` layers already choose the whole model's token."""
    short_model = model.first_layers(n)
    right = total = 0
    for name in ("quoting", "list continuation", "plain prose"):
        result = plain[name]
        start = len(result.prompt_ids) - 1
        hidden = short_model.hidden(np.array([result.prompt_ids + result.ids[:-1]]), None, None)[0, start:]
        right += int((short_model.head(hidden).argmax(axis=1) == np.array(result.ids)).sum())
        total += len(result.ids)
    return right / total


HEAD = model.vocab_size * model.d_model
LAYER = 2 * model.d_model**2 + 2 * model.d_model * model.n_kv_heads * model.d_head + 3 * model.d_model * model.config.d_ff
agreement = {}
for n in (8, 15, 18, 20, 21, 22, 24, 30):
    agreement[n] = layer_agreement(n)
    cost = (HEAD + n * LAYER) / (HEAD + model.n_layers * LAYER)
    print(f"{n:2} layers: right {agreement[n]:.2f}, cost {cost:.2f} of a pass")
    assert acceptance.best_k(agreement[n], cost) == 0
assert agreement[30] == 1 and agreement[15] < 0.1

# %% [markdown]
# A sobering table: with half of the layers, 15, fewer than one guess in ten is right. SmolLM2 decides late, and nobody has
# trained its middle layers to speak through the head. By chapter 12's rule the first draft token pays only where the
# share that is right exceeds the cost; that holds in no row, so the best $k$ is 0 in all of them. You still want to see
# that a poor draft changes nothing but the time, so take the fewest layers that are right at least one time in four.

# %%
N = min(n for n, right in agreement.items() if right >= 0.25)
print("N =", N)
assert model.n_layers > N == smollm2.DRAFT_LAYERS
assert agreement[N - 1] < 0.25  # one layer fewer was tried, and is too few

# %% [markdown]
# ## Every draft on every request
#
# **Predict** before you run: from which draft are most tokens kept on the quoting request, and from which on prose? Every
# draft may propose $k = 4$ tokens a round, since the rate depends on $k$. Plain decoding runs once more before them, so that
# the times belong to the same moment.

# %% tags=["nbval-ignore-output"]
K = 4
KINDS = ("prompt lookup", "n-gram", "model")
runs, seconds, plain_seconds = {}, {}, {}
with tqdm(total=len(requests) * len(KINDS), file=sys.stdout, desc="runs") as bar:
    for name, prompt in requests.items():
        started = time.perf_counter()
        generate(model, tok, prompt, greedy)
        plain_seconds[name] = time.perf_counter() - started
        for kind, draft in smollm2.drafts(model, plain[name].prompt_ids).items():
            started = time.perf_counter()
            runs[name, kind] = speculative_generate(model, draft, tok, prompt, greedy, k=K)
            seconds[name, kind] = time.perf_counter() - started
            bar.update()
assert len(runs) == len(requests) * len(KINDS)

# %% [markdown]
# ## The claim
#
# Same ids, and the same log-probabilities **to the bit**. That cannot be taken for granted. A verification pass multiplies five
# rows by each matrix where plain decoding multiplies one, and floating-point sums depend on the order of their terms.
# **Predict:** the logits of five rows computed in one pass, and of the same five computed one pass each. In how many of the
# $5 \times 49152$ numbers do they differ?

# %%
some = plain["quoting"].prompt_ids + plain["quoting"].ids
five = len(some) - 5


def logits_in_passes(sizes):
    """Logits [5, V] of the last five positions, fed in passes of these sizes after the rest."""
    cache = KVCache(model.n_layers, model.n_kv_heads, model.d_head, len(some))
    model.forward(np.array([some[:five]]), cache.positions(five), cache)
    rows, at = [], five
    for size in sizes:
        rows.append(model.forward(np.array([some[at : at + size]]), cache.positions(size), cache)[0])
        at += size
    return np.concatenate(rows)


at_once, one_by_one = logits_in_passes([5]), logits_in_passes([1] * 5)
print("numbers that differ:", int((at_once != one_by_one).sum()), "of", at_once.size)
assert np.array_equal(at_once, one_by_one) and np.array_equal(at_once, logits_in_passes([2, 3]))

# %% [markdown]
# In none. The kernels of chapter 07 compute each row by the same operations in the same order, whatever stands beside it. Other
# engines document the difference instead: vLLM promises losslessness up to the numerics of the hardware, and where greedy output
# changes under speculation, transformers and MLX-LM point at rounding. Kernels that rule it out have their price: SGLang
# reports 34% for its deterministic mode, and the first ones of Thinking Machines (2025) took 61%.
#
# With equal rows, "speculative greedy equals greedy" is a theorem, and the comparison may be of bytes, not of numbers that are
# close.

# %%
for (name, kind), run in runs.items():
    assert run.ids == plain[name].ids, (name, kind)
    assert run.text == plain[name].text, (name, kind)
    assert np.array(run.logprobs).tobytes() == np.array(plain[name].logprobs).tobytes(), (name, kind)
    assert run.stats["target_calls"] <= len(run.ids)
print(len(runs), "runs: ids equal, log-probabilities equal to the bit")

# %%
def measured(name, kind):
    """One run's counts, as chapter 12 keeps them."""
    made = runs[name, kind]
    rejected = sum(done.kind == "correction" for done in made.rounds)
    return acceptance.Run(kind, K, int(made.stats["drafted"]), int(made.stats["accepted"]), rejected,
                          len(made.ids) / len(made.rounds))


print(f"{'':18}" + "".join(f"{kind:>27}" for kind in KINDS))
most_kept = {}
for name in requests:
    cells = []
    for kind in KINDS:
        run = measured(name, kind)
        passes = runs[name, kind].stats["target_calls"]
        cells.append(f"{run.accepted:2} of {run.drafted:3} ({run.alpha:.2f}), {passes:2.0f}")
    most_kept[name] = max(KINDS, key=lambda kind: measured(name, kind).accepted)
    print(f"{name:18}" + "".join(f"{cell:>27}" for cell in cells))
print("most kept on quoting:", most_kept["quoting"] + "; on prose:", most_kept["plain prose"])
assert most_kept["quoting"] == most_kept["plain prose"] == "n-gram"
assert all(measured(name, "prompt lookup").drafted < measured(name, "n-gram").drafted for name in requests)

# %% [markdown]
# Each cell: kept of proposed tokens, in brackets $\hat\alpha$ (kept of judged), then target passes for 32 tokens.
#
# Both predictions have the same answer, and on quoting it is a near thing. The n-gram draft has counted the prompt too, so
# it copies almost as prompt lookup does, and it has an answer where nothing can be copied. On prose that makes the
# difference: prompt lookup proposes a third as many tokens there and two are right.
#
# Read the number of proposed tokens next to $\hat\alpha$. In the multilingual row prompt lookup is right four times in
# five, but it proposes little, so it saves fewer passes than its $\hat\alpha$ suggests. Silence costs nothing, however: a round
# without a draft is a plain step. The n-gram draft always has something to say and pays for it with a wider pass.
#
# Where does each draft shine, and where does it do nothing? Passes saved, of the 32 that plain decoding takes. **Predict** for
# each draft the request on which it saves most, and the one on which it saves least.

# %%
saved = {kind: {name: 32 - int(runs[name, kind].stats["target_calls"]) for name in requests} for kind in KINDS}
for kind in KINDS:
    ranked = sorted(requests, key=lambda name: -saved[kind][name])
    print(f"{kind:14} most on {ranked[0]} ({saved[kind][ranked[0]]}); least on {ranked[-1]} ({saved[kind][ranked[-1]]})")
assert (saved["prompt lookup"]["code editing"], saved["prompt lookup"]["plain prose"]) == (24, 2)
assert min(saved["n-gram"].values()) == 4
assert (max(saved["model"].values()), min(saved["model"].values())) == (11, 1)

# %% [markdown]
# Copying saves most where the text repeats itself: 24 of the 32 passes on the code request, which became a loop, and 2 on prose. The
# n-gram draft never saves fewer than 4, for common continuations are common everywhere. The short model saves 11 at best and 1 at
# worst. No draft is best for every text, which is why engines let you choose, and some change their mind while they run.
#
# ## Passes are not seconds
#
# **Predict:** every draft has cut the number of passes on every request. On how many of the seven requests is each faster
# than plain decoding?

# %% tags=["nbval-ignore-output"]
print(f"tokens per second {'plain':>11}" + "".join(f"{kind:>16}" for kind in KINDS))
for name in requests:
    count = len(plain[name].ids)
    speeds = "".join(f"{count / seconds[name, kind]:16.1f}" for kind in KINDS)
    print(f"{name:18}{count / plain_seconds[name]:11.1f}" + speeds)
faster = {kind: sum(seconds[name, kind] < plain_seconds[name] for name in requests) for kind in KINDS}
print(f"faster than plain on {'':8}" + "".join(f"{f'{faster[kind]} of {len(requests)}':>16}" for kind in KINDS))
assert all(run.stats["target_calls"] < len(run.ids) for run in runs.values())

# %% [markdown]
# The figures are those of the machine that ran the cell. They shift from run to run, and far more while the machine is
# busy with something else.
#
# To see why fewer passes can take longer, put two measured costs into chapter 12's formula. There a round took $1 + ck$
# passes. Here a pass over $k + 1$ rows takes longer than one over a single row: $w$ times as long, on a processor that has
# to compute every row. So a round that drafts takes $w + ck$, and it pays only if it emits more tokens than that.

# %% tags=["nbval-ignore-output"]
def median_seconds(work, *arguments):
    """The median time of seven calls."""
    taken = []
    for _ in range(7):
        started = time.perf_counter()
        work(*arguments)
        taken.append(time.perf_counter() - started)
    return float(np.median(taken))


ids = plain["quoting"].prompt_ids + plain["quoting"].ids
cache = KVCache(model.n_layers, model.n_kv_heads, model.d_head, len(ids))
held = len(ids) - (K + 1)
model.forward(np.array([ids[:held]]), cache.positions(held), cache)


def one_pass(rows):
    model.forward(np.array([ids[held : held + rows]]), cache.positions(rows), cache)
    cache.truncate(held)


one_row = median_seconds(one_pass, 1)
w = median_seconds(one_pass, K + 1) / one_row
print(f"a pass over {K + 1} rows takes {w:.1f} passes over one")
for kind, draft in smollm2.drafts(model, plain["quoting"].prompt_ids).items():
    ck = median_seconds(draft.propose, ids, K, None) / one_row
    emitted = {}
    for name in requests:
        drafting = [done.accepted + 1 for done in runs[name, kind].rounds if done.draft]
        emitted[name] = sum(drafting) / len(drafting)
    paying = sum(tokens > w + ck for tokens in emitted.values())
    print(f"{kind:14} {K} drafts take {ck:.2f} passes: a round must emit {w + ck:.2f}; it emits {min(emitted.values()):.2f} "
          f"to {max(emitted.values()):.2f}, enough on {paying} of {len(requests)} requests")
    assert min(emitted.values()) >= 1 and (kind != "model" or max(emitted.values()) < 2)

# %% [markdown]
# Copying costs nothing, so prompt lookup has only the wide pass to earn back, and it takes that risk only when it has
# found something. The n-gram draft risks the wide pass every round. The model draft has to earn four passes over 21
# layers on top; a round can emit 5 tokens at most, and with its $\hat\alpha$ it emits fewer than 2. That is what the rule
# said before any run: there, the best $k$ was 0.

# %% [markdown]
# ## Where each token came from
#
# `Generation.rounds` keeps the history of every run, so you can colour each token by its origin. A round without a draft is
# a plain step; its token is coloured as a bonus too.

# %%
ORIGINS = ("kept", "correction", "bonus")


def origins(result):
    """For each emitted token: "kept" for an accepted draft, else the kind of the target's own token."""
    found = []
    for done in result.rounds:
        found += ["kept"] * done.accepted + [done.kind]
    return found[: len(result.ids)]


figure, axes = new_figure(rows=3, height=5.4)
for ax, kind in zip(axes, KINDS):
    for row, name in enumerate(requests):
        for column, origin in enumerate(origins(runs[name, kind])):
            ax.barh(row, 1, left=column, height=0.8, color=PALETTE[origin], edgecolor="white", linewidth=0.5)
    ax.set(yticks=range(len(requests)), yticklabels=list(requests), title=kind, xlim=(0, 32))
    ax.invert_yaxis()
axes[-1].set_xlabel("token")
for origin in ORIGINS:
    axes[0].barh(0, 0, color=PALETTE[origin], label=origin)
figure.legend(frameon=False, ncols=3, loc="outside lower center")
kept = {kind: sum(origins(runs[name, kind]).count("kept") for name in requests) for kind in KINDS}
total = sum(len(result.ids) for result in plain.values())
show(figure, f"Each of {total} tokens by origin, one row a request. Kept drafts: "
             + ", ".join(f"{kind} {kept[kind]}" for kind in KINDS) + ".")
assert all(len(origins(run)) == len(run.ids) for run in runs.values())

# %% [markdown]
# How much of a draft is kept differs from text to text as much as from draft to draft. Choose both below; the counts are
# those of the runs you have just made.

# %% tags=["nbval-ignore-output"]
draft_shape.widget(runs)

# %% [markdown]
# ## Live
#
# Now write a prompt of your own. **Predict** which draft will suit it. Tick *then plain decoding, to compare*, press Run, and
# read the tokens per second below the buttons. The figure leaves out the first pass, which reads the prompt. Above
# temperature 0 the two are different samples of the same distribution.

# %% tags=["nbval-ignore-output"]
live.widget()

# %% [markdown]
# ## Your turn: tokens per pass
#
# Write a function that gives, for one draft, the tokens of all requests together, divided by the target passes of all
# requests together. Which draft has the highest? The check goes another way than you are likely to: through the rounds.

# %%
def my_tokens_per_pass(kind):
    return None  # your answer


my_best = None  # your answer, one of KINDS

by_rounds = {kind: np.mean([done.accepted + 1 for name in requests for done in runs[name, kind].rounds]) for kind in KINDS}
for kind in KINDS:
    given = my_tokens_per_pass(kind)
    if given is not None:
        print(f"{kind}: " + ("right" if np.isclose(given, by_rounds[kind]) else "not yet; all tokens over all passes"))
if my_best is not None and my_best not in KINDS:
    print(f"highest: not yet; it is one of {', '.join(map(repr, KINDS))}")
elif my_best is not None:
    print("highest: " + ("right" if my_best == max(by_rounds, key=by_rounds.get) else "not yet; another draft has more"))

# %% tags=["solution"]
# Solution
def my_tokens_per_pass(kind):
    ids = sum(len(runs[name, kind].ids) for name in requests)
    return ids / sum(runs[name, kind].stats["target_calls"] for name in requests)


for kind in KINDS:
    print(f"{kind:14} {my_tokens_per_pass(kind):.2f}")
    assert np.isclose(my_tokens_per_pass(kind), by_rounds[kind])
my_best = max(KINDS, key=my_tokens_per_pass)
print("highest:", my_best)

# %% [markdown]
# ## Your turn: a draft that is always right
#
# Let the whole model draft for itself on the list request. Predict the acceptance rate, and the passes for 32 tokens
# with `k=3`. As soon as you have filled in one of them, the cell makes the run.

# %%
my_rate = my_passes = None  # your answers


def self_drafted():
    return speculative_generate(model, ModelDraft(model), tok, requests["list continuation"], greedy, k=3)


if my_rate is not None or my_passes is not None:
    found = self_drafted().stats
    for what, answer, key, hint in (
        ("rate", my_rate, "acceptance_rate", "how often does the target's choice differ from its own?"),
        ("passes", my_passes, "target_calls", "how many tokens does each round emit?"),
    ):
        if answer is not None:
            print(f"{what}: " + ("right" if answer == found[key] else f"not yet; {hint}"))

# %% tags=["solution"]
# Solution
my_rate = 1  # the draft is what the target would choose
my_passes = 32 / (3 + 1)  # every round keeps three and adds one
run = self_drafted()
print("acceptance", run.stats["acceptance_rate"], "passes", run.stats["target_calls"])
assert run.ids == plain["list continuation"].ids
assert (run.stats["acceptance_rate"], run.stats["target_calls"]) == (my_rate, my_passes)

# %% [markdown]
# ## The milestone with your own code
#
# When you have built L8.6, and what it needs, `ol milestone MS-L8` makes the n-gram and the prompt-lookup runs of this chapter
# with your files (the steps `spec-ngram-greedy` and `spec-lookup-greedy`), and one more request whose continuation is known.
# It compares each id with plain decoding and reports the acceptance rate.
#
# ## Your pieces in production
#
# | your piece | in an engine | what it adds | where to look |
# |---|---|---|---|
# | `verify_draft` | vLLM's rejection sampler | all requests of a batch in one step on the GPU, each with its own draft length; the replacement found without normalising the residual | `v1/sample/rejection_sampler.py` |
# | `PromptLookupDraft` | vLLM's n-gram proposer; transformers' `prompt_lookup_num_tokens` | one pass of a KMP search over the whole context; a least and a greatest n | `v1/spec_decode/ngram_proposer.py` |
# | `ModelDraft` | EAGLE, Medusa | a trained head that drafts from the target's own hidden states; a tree of candidates, checked in one pass under a tree mask | Li et al. (2024), Cai et al. (2024) |
# | one draft a round | trees of drafts in SGLang and vLLM | several continuations that share their beginnings, verified together | SGLang `srt/speculative/`; Miao et al. (2023) |
# | a fixed $k$ | adaptive lengths in transformers, SGLang, TensorRT-LLM | $k$ follows what was accepted of late, down to no speculation at all | chapter 12 |
# | `acceptance_rate` | vLLM's and llama.cpp's metrics | mean acceptance length, acceptance by position, over all requests | `v1/spec_decode/metrics.py` |
#
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_speculative_greedy_equals_greedy` | ids equal plain decoding, on toy models and every draft |
# | `test_logprobs_are_the_targets` | the log-probabilities are plain decoding's |
# | `test_stats_and_one_pass_per_round` | one target pass a round, and the counts of the table |
# | `test_case_11_greedy_speculation_is_greedy_on_the_real_model` | the claim of this chapter, on SmolLM2 |
#
# ## If you skip this
#
# Nothing later needs its code. But it is the only chapter where all parts meet on a model somebody trained for use.
#
# ## Going further
#
# - Allal et al., *SmolLM2: When Smol Goes Big*, 2025: the model.
# - Elhoushi et al., *LayerSkip*, ACL 2024: train a model so that its first layers can draft.
# - Li et al., *EAGLE*, ICML 2024: a small trained head on the target's hidden states; Cai et al., *Medusa*, ICML 2024: several.
# - He and Thinking Machines Lab, *Defeating Nondeterminism in LLM Inference*, 2025: why bits depend on the batch, and how not.
