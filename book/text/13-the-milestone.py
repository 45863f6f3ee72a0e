# %% [markdown]
# # 13 The milestone
#
# You will run SmolLM2, a real model, with three drafts on seven kinds of text, and check that its output stays the same
# to the bit while the number of passes falls.
#
# This chapter needs the model's file. Where it is missing, the first code cell says in one sentence what to do.

# %% tags=["needs-model", "nbval-ignore-output"]
import sys
import time

import numpy as np
from tqdm import tqdm

from tinyllm import smollm2, smollm2_text
from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import speculative_generate
from tinyllm.zoo import smollm2 as load_smollm2

model, tok = load_smollm2()
print(model.n_layers, "layers,", model.vocab_size, "tokens")
assert (model.n_layers, model.vocab_size) == (30, 49152)

# %% [markdown]
# ## Seven requests
#
# The first kinds repeat what they were given; the later ones have to invent. Each is continued by 32 tokens at
# temperature 0, so there is exactly one right output: the one plain decoding gives.

# %%
requests = smollm2.requests(tok)
greedy = SamplingParams(temperature=0, max_tokens=32)
plain, plain_seconds = {}, {}
for name, prompt in requests.items():
    started = time.perf_counter()
    plain[name] = generate(model, tok, prompt, greedy)
    plain_seconds[name] = time.perf_counter() - started
    print(f"{name:18}", repr(plain[name].text[:70]))
assert all(len(result.rounds) == len(result.ids) for result in plain.values())

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
# model chose? The cost is counted in weights read, as a share of a whole pass.

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
for n in (8, 16, 24, 30):
    agreement[n] = layer_agreement(n)
    cost = (HEAD + n * LAYER) / (HEAD + model.n_layers * LAYER)
    print(f"{n:2} layers: right {agreement[n]:.2f}, cost {cost:.2f} of a pass")
assert agreement[30] == 1

# %% [markdown]
# A sobering table. SmolLM2 decides late, and nobody has trained its middle layers to speak through the head. A draft
# that costs most of a pass and is often wrong cannot save time. You still want to see that a poor draft does no harm,
# so take the fewest layers that are right at least one time in four.

# %%
N = min(n for n, right in agreement.items() if right >= 0.25)
print("N =", N)
assert model.n_layers > N == smollm2.DRAFT_LAYERS

# %% [markdown]
# ## Every draft on every request
#
# **Predict** before you run: which draft accepts most on the quoting request, and which on prose? The model draft
# proposes 2 tokens a round, since each costs it a pass; the free drafts propose 4.

# %% tags=["nbval-ignore-output"]
K = {"prompt lookup": 4, "n-gram": 4, "model": 2}
runs, seconds = {}, {}
with tqdm(total=len(requests) * len(K), file=sys.stdout, desc="runs") as bar:
    for name, prompt in requests.items():
        for kind, draft in smollm2.drafts(model, plain[name].prompt_ids).items():
            started = time.perf_counter()
            runs[name, kind] = speculative_generate(model, draft, tok, prompt, greedy, k=K[kind])
            seconds[name, kind] = time.perf_counter() - started
            bar.update()
assert len(runs) == len(requests) * len(K)

# %% [markdown]
# ## The claim
#
# Same ids, and the same log-probabilities **to the bit**: a row of logits does not depend on how many rows were
# computed with it. So the comparison is of bytes, not of numbers that are close.

# %%
for (name, kind), run in runs.items():
    assert run.ids == plain[name].ids, (name, kind)
    assert run.text == plain[name].text, (name, kind)
    assert np.array(run.logprobs).tobytes() == np.array(plain[name].logprobs).tobytes(), (name, kind)
    assert run.stats["target_calls"] <= len(run.ids)
print(len(runs), "runs: ids equal, log-probabilities equal to the bit")

# %%
print(f"{'':18}" + "".join(f"{kind:>24}" for kind in K))
for name in requests:
    cells = []
    for kind in K:
        stats = runs[name, kind].stats
        cells.append(f"{stats['acceptance_rate']:.2f} in {stats['target_calls']:.0f} passes")
    print(f"{name:18}" + "".join(f"{cell:>24}" for cell in cells))

# %% [markdown]
# Each cell: accepted over proposed, and target passes for 32 tokens. Note that a high rate with few proposals saves
# little: prompt lookup stays silent where nothing repeats. That costs nothing, so silence is a good answer.
#
# Passes are not seconds. A pass over 5 rows takes longer than one over 1 row, and the model draft pays for its own.

# %% tags=["nbval-ignore-output"]
print(f"tokens per second {'plain':>11}" + "".join(f"{kind:>16}" for kind in K))
for name in requests:
    count = len(plain[name].ids)
    speeds = "".join(f"{count / seconds[name, kind]:16.1f}" for kind in K)
    print(f"{name:18}{count / plain_seconds[name]:11.1f}" + speeds)
assert min(seconds.values()) > 0

# %% [markdown]
# ## Where each token came from
#
# `Generation.rounds` keeps the history of every run, so you can colour each token by its origin.

# %%
ORIGINS = ("kept", "correction", "bonus")


def origins(result):
    """For each emitted token: "kept" for an accepted draft, else the kind of the target's own token."""
    found = []
    for done in result.rounds:
        found += ["kept"] * done.accepted + [done.kind]
    return found[: len(result.ids)]


figure, axes = new_figure(rows=3, height=5.4)
for ax, kind in zip(axes, K):
    for row, name in enumerate(requests):
        for column, origin in enumerate(origins(runs[name, kind])):
            ax.barh(row, 1, left=column, height=0.8, color=PALETTE[origin], edgecolor="white", linewidth=0.5)
    ax.set(yticks=range(len(requests)), yticklabels=list(requests), title=kind, xlim=(0, 32))
    ax.invert_yaxis()
axes[-1].set_xlabel("token")
for origin in ORIGINS:
    axes[0].barh(0, 0, color=PALETTE[origin], label=origin)
figure.legend(frameon=False, ncols=3, loc="outside lower center")
kept = {kind: sum(origins(runs[name, kind]).count("kept") for name in requests) for kind in K}
total = sum(len(result.ids) for result in plain.values())
show(figure, f"Each of {total} tokens by origin, one row a request. Kept drafts: "
             + ", ".join(f"{kind} {kept[kind]}" for kind in K) + ".")
assert all(len(origins(run)) == len(run.ids) for run in runs.values())

# %% [markdown]
# ## Your turn: tokens per pass
#
# Write a function that gives the mean number of tokens per target pass of one draft over all requests. Which draft has
# the highest?

# %%
def my_tokens_per_pass(kind):
    return None  # your answer


if my_tokens_per_pass("model") is not None:
    passes = sum(runs[name, "model"].stats["target_calls"] for name in requests)
    print(np.isclose(my_tokens_per_pass("model"), total / passes))

# %% tags=["solution"]
# Solution
def my_tokens_per_pass(kind):
    ids = sum(len(runs[name, kind].ids) for name in requests)
    return ids / sum(runs[name, kind].stats["target_calls"] for name in requests)


for kind in K:
    print(f"{kind:14} {my_tokens_per_pass(kind):.2f}")
    assert my_tokens_per_pass(kind) >= 1

# %% [markdown]
# ## Your turn: a draft that is always right
#
# Let the whole model draft for itself on the list request. Predict the acceptance rate, and the passes for 32 tokens
# with `k=3`.

# %%
my_rate, my_passes = None, None  # your answer
if my_rate is not None:
    print(my_rate == 1, my_passes == 8)

# %% tags=["solution"]
# Solution
from tinyllm.infer.spec import ModelDraft

name = "list continuation"
run = speculative_generate(model, ModelDraft(model), tok, requests[name], greedy, k=3)
print("acceptance", run.stats["acceptance_rate"], "passes", run.stats["target_calls"])
assert run.ids == plain[name].ids
assert (run.stats["acceptance_rate"], run.stats["target_calls"]) == (1.0, 8.0)

# %% [markdown]
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
# - Li et al., *EAGLE*, ICML 2024: a small trained head on the target's hidden states.
