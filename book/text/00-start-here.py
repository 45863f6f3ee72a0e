# %% [markdown]
# # 00 Start here
#
# You will see a real language model write several tokens in one pass without changing a single one of them, and know your way
# around this book, its tests, and your own machine.
#
# A notebook is made of cells. Click on a cell and press Shift+Enter to run it. Do that with the next one now; the
# explanations can wait a minute. (The very first run compiles for ten to twenty seconds.)

# %% tags=["nbval-ignore-output"]
import sys
from contextlib import redirect_stderr

from tinyllm import smollm2
from tinyllm.explore import round_player
from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import PromptLookupDraft, speculative_generate
from tinyllm.zoo import smollm2 as load_smollm2
from tinyllm.zoo import why_not

reason = why_not()  # None when the model is here
if reason is None:
    model, tok = load_smollm2()
    prompt, greedy = smollm2.PROMPTS["quoting"], SamplingParams(temperature=0, max_tokens=32)
    with redirect_stderr(sys.stdout):  # where it says that it compiles
        generate(model, tok, prompt, SamplingParams(temperature=0, max_tokens=1))
    print(prompt, end="")
    fast = speculative_generate(model, PromptLookupDraft(), tok, prompt, greedy, k=4,
                                on_text=lambda piece: print(piece, end="", flush=True))
else:
    print(reason, "Until then you see a run that was recorded.")

# %% [markdown]
# That was SmolLM2, a language model with 135 million weights, on your own processor. A model normally writes **one token**
# (a word, or a part of one) **a pass** over all its weights. Here something very cheap guessed the next four tokens, by
# copying from the text so far. The model looked at the four guesses in *one* pass, kept those that it would have written
# itself, and added one token of its own. That is **speculative decoding**.
#
# Now the same without guesses. **Predict:** how many passes do 32 tokens take then? And is it the same text? (Do not judge by
# the seconds here: one short run says little. Chapters 07 and 13 measure with care, and find out when fewer passes do *not* take
# less time.)

# %% tags=["nbval-ignore-output"]
if reason is None:
    plain = generate(model, tok, prompt, greedy)
    for name, run in (("with guesses", fast), ("without", plain)):
        print(f"{name:13}: {len(run.ids)} tokens in {len(run.rounds):2} passes, {run.timings['total_s']:.2f} s")
    assert fast.ids == plain.ids and fast.logprobs == plain.logprobs
    print("the same tokens, with the same log-probabilities, to the last bit")

# %% [markdown]
# Not one token has changed.
#
# Here is a run token by token. **Predict** before you look: how can you tell from the colours how many passes it took?

# %% tags=["nbval-ignore-output"]
if reason is None:
    round_player.picture(fast, -1, tok)
else:
    round_player.picture(round_player.recorded(), -1)

# %% [markdown]
# Every pass ends in exactly one token of the model's own: a **correction**, where a guess was wrong, or a **bonus**, where all
# guesses were right. (A pass can have no guesses at all, *0 of 0*: nothing in the text so far could be copied, or only one token
# was left to write, and that one is the model's own.) So the passes are the purple and the light blue tokens, counted. Everything green came for free.
#
# Play it pass by pass. This one is a recorded run of another draft, one that counts what usually follows; it also guesses
# where nothing can be copied, and is often wrong there.

# %% tags=["nbval-ignore-output"]
round_player.widget()

# %%
recorded = round_player.recorded()
own = sum(done.kind in ("correction", "bonus") for done in recorded.rounds)
kept = sum(done.accepted for done in recorded.rounds)
print(f"{len(recorded.ids)} tokens: {kept} guesses kept and {own} of the model's own, so {own} passes")
assert own == len(recorded.rounds) and kept + own == len(recorded.ids)

# %% [markdown]
# Now a text of your own. Change the prompt, the draft and the temperature, press *Run*, and watch where the green is. (Where there
# is no model, it says so.)

# %% tags=["nbval-ignore-output"]
from tinyllm.explore import live

live.widget()

# %% [markdown]
# ## What you will be able to do
#
# If you know Python and a little probability, then at the end of the book you can
#
# - **derive** the rule by which a guess is kept or replaced, and prove that it changes nothing;
# - **write** the verifier, the drafts and the loop, and roll a cache back after a wrong guess;
# - **predict** from two numbers how much faster a draft makes a model, or that it makes it slower;
# - **say** for every claim which test protects it, and what breaks without it.
#
# Two things are unusual here. Where others sample and compare, you will *count*: all outcomes, as fractions, compared with `==`. And
# the model computes a token's numbers with the same bits whether it looks at one token or at nine, so *the same text* is a theorem
# and not luck.
#
# ## The map
#
# Fifteen chapters in four groups. A chapter uses what earlier ones built. In a hurry? 02, 03, 08, 09, 11 and 12 are the
# spine.

# %%
from tinyllm.explore.figure import PALETTE, new_figure, show

GROUPS = {
    "chance": [
        ("01", "replay", "M06.3, M07.1"), ("02", "distances", "M11.1"), ("03", "accept or\nreplace", "M07.6"),
    ],
    "one token\na pass": [
        ("04", "counts", "L2.1"), ("05", "logits to\na token", "L8.1"), ("06", "generate", "L8.2"),
        ("07", "cost of\na pass", ""),
    ],
    "several\na pass": [
        ("08", "by hand", "L8.6"), ("09", "the verifier", "L8.6"), ("10", "three drafts", "L8.6"),
        ("11", "rollback", "L8.6"),
    ],
    "does it\nhold?": [
        ("12", "how fast", "L8.6"), ("13", "real model", "L8.6"), ("14", "twelve bugs", "L8.6"),
        ("15", "another\nengine", "L10.8"),
    ],
}
SPINE = ("02", "03", "08", "09", "11", "12")
figure, (ax,) = new_figure(height=3.9)
for row, (group, chapters) in enumerate(GROUPS.items()):
    ax.text(-0.1, -row, group, ha="right", va="center", fontsize=10, color=PALETTE["line"])
    for column, (number, title, modules) in enumerate(chapters):
        box = {"boxstyle": "round,pad=0.4", "edgecolor": "none"}
        box["facecolor"] = PALETTE["target" if number in SPINE else "prompt"]
        ax.text(column + 0.5, -row, f"{number} {title}\n{modules}".strip(), ha="center", va="center",
                fontsize=9, color="white" if number in SPINE else "black", bbox=box)
    if row:
        ax.annotate("", (0.5, -row + 0.34), (0.5, -row + 0.66), arrowprops={"arrowstyle": "->"})
ax.set(xlim=(-0.9, 4), ylim=(-3.5, 0.5))
ax.axis("off")
show(figure, "The chapters with the modules they build. Chance: 01 to 03. One token a pass: 04 to 07. Several a "
             "pass: 08 to 11. Does it hold: 12 to 15. The spine is drawn in blue: 02, 03, 08, 09, 11, 12.")

# %% [markdown]
# | chapter | you will |
# |---|---|
# | [01 Randomness you can replay](01-replayable-randomness.ipynb) | build a random generator; turn one uniform into one token |
# | [02 Distances between distributions](02-distances.ipynb) | measure how much draft and target share |
# | [03 Accept or replace](03-accept-or-replace.ipynb) | turn the draft's word into the target's, exactly |
# | [04 A model made of counts](04-a-model-made-of-counts.ipynb) | build an n-gram model |
# | [05 From logits to a token](05-from-logits-to-a-token.ipynb) | temperature, penalties, filters, one draw |
# | [06 One token a pass](06-one-token-a-pass.ipynb) | write the plain loop, with its cache |
# | [07 What a pass costs](07-what-a-pass-costs.ipynb) | measure on your machine why guesses are cheap to check |
# | [08 By hand](08-by-hand.ipynb) | work three small cases with a pencil |
# | [09 The verifier](09-the-verifier.ipynb) | write `verify_draft` and prove it exact |
# | [10 Three drafts](10-three-drafts.ipynb) | copy, count, or ask a smaller model |
# | [11 Rollback](11-rollback.ipynb) | forget rejected guesses without a trace |
# | [12 How fast](12-how-fast.ipynb) | predict the speedup, and where the formula fails |
# | [13 The milestone](13-the-milestone.ipynb) | SmolLM2 with every draft: the same bits |
# | [14 Twelve ways to be wrong](14-twelve-ways-to-be-wrong.ipynb) | meet twelve bugs and the tests that catch them |
# | [15 Holding another engine to this one](15-holding-another-engine.ipynb) | judge a program in any language |
#
# Words you do not know are in the [glossary](glossary.md), sources in the [references](references.md).
#
# ## Is your machine ready?
#
# The next cell asks what the command `ol doctor` asks about this computer. *bad* must be mended, and the line says how; with
# a *note* you can go on.

# %% tags=["nbval-ignore-output"]
from ol.doctor import examine
from ol.workspace import Workspace

elsewhere = ("your folder", "course")
findings = [finding for finding in examine(Workspace()) if finding.what not in elsewhere]
for finding in findings:
    more = "" if finding.state == "ok" else f": {finding.found}\n        type: {finding.fix}"
    print(f"{finding.state:5} {finding.what}{more}")
bad = [finding.what for finding in findings if finding.state == "bad"]
print("\nThis machine is ready." if not bad else f"\nFirst mend: {', '.join(bad)}.")

# %% [markdown]
# (In a terminal, `ol doctor` looks at two things more: your own folder, and whether the course's files are as they were.)
#
# ## Two commands
#
# In a terminal, in the folder of this book:
#
# - `make lab` makes the environment, fetches the model, and opens this page. You have probably typed it already.
# - `make test` runs everything that is claimed here: all tests, and every cell of every chapter, compared with the outputs that
#   you see.
#
# ## How to read a chapter
#
# **Predict.** Before a result there is a question in bold. Answer it before you run the cell, aloud or on paper. A wrong
# prediction is worth more than a right one: it shows you where to look.
#
# **Your turn.** Exercises have a line such as `my_answer = None  # your answer`. Fill it in, run the cell, and it tells you at once whether you are
# right. Leave it at `None`, and nothing happens. One solution is folded away below; a click on its three dots opens it.
#
# Try it now.

# %% [markdown]
# ## Your turn: from guesses to passes
#
# A draft guesses four tokens in each of five passes. Of the guesses, the model keeps 4, 0, 2, 4 and 1. How many tokens are written? And
# how many passes would plain decoding have needed for them?

# %%
my_tokens = my_plain_passes = None  # your answers, numbers
guesses_kept = [4, 0, 2, 4, 1]
written = sum(kept + 1 for kept in guesses_kept)
if my_tokens is not None:
    right = my_tokens == written
    print("tokens:", "right" if right else "not yet; what does every pass add at its end?")
if my_plain_passes is not None:
    right = my_plain_passes == written
    print("plain passes:", "right" if right else "not yet; without guesses a pass writes one token")

# %% tags=["solution"]
# Solution
my_tokens = (4 + 1) + (0 + 1) + (2 + 1) + (4 + 1) + (1 + 1)
my_plain_passes = my_tokens
print(f"{my_tokens} tokens in {len(guesses_kept)} passes instead of {my_plain_passes}")
assert my_tokens == written == my_plain_passes == 16

# %% [markdown]
# ## Your turn: the worst draft in the world
#
# Here is a small model that recites the alphabet, and a draft that is wrong on purpose, every time. Before you run anything: how
# many passes will 20 letters take with it, and will the text be the same? Answer the second with True or False.

# %%
import numpy as np


class Alphabet:
    """A model that recites: after each letter it wants the next one of the alphabet, and a after z."""

    n_layers, n_kv_heads, d_head, max_len = 1, 1, 1, 64

    def forward(self, ids, positions, cache):
        if cache is not None:  # it remembers nothing, but the loop counts what is in the cache
            nothing = np.zeros((1, 1, ids.shape[1], 1), dtype=np.float32)
            cache.update(0, nothing, nothing)
        return 9.0 * np.eye(26)[(ids + 1) % 26]  # [1, T, 26]


class Letters:
    """Ids 0 to 25 are the letters a to z."""

    def encode(self, text):
        return [ord(letter) - ord("a") for letter in text]

    def decode(self, ids):
        return "".join(chr(ord("a") + i) for i in ids)


class Stuck:
    """A draft that always proposes the last letter again: never what the model wants."""

    def propose(self, ctx, k, rng):
        return [ctx[-1]] * k, None


twenty = SamplingParams(temperature=0, max_tokens=20)
print(generate(Alphabet(), Letters(), "abc", twenty).text)
my_passes = my_same_text = None  # your answers: a number, and True or False
if my_passes is not None or my_same_text is not None:
    run = speculative_generate(Alphabet(), Stuck(), Letters(), "abc", twenty, k=4)
    plain = generate(Alphabet(), Letters(), "abc", twenty)
    if my_passes is not None:
        right = my_passes == run.stats["target_calls"]
        print("passes:", "right" if right else "not yet; what does a pass write when no guess is right?")
    if my_same_text is not None:
        right = my_same_text == (run.text == plain.text)
        print("same text:", "right" if right else "not yet; who has the last word in each pass?")

# %% tags=["solution"]
# Solution
my_passes = 20  # each pass writes the model's own token and nothing else
my_same_text = True
run = speculative_generate(Alphabet(), Stuck(), Letters(), "abc", twenty, k=4)
print(f"{run.text} in {run.stats['target_calls']:.0f} passes, {run.stats['accepted']:.0f} of "
      f"{run.stats['drafted']:.0f} guesses kept")
assert run.stats["target_calls"] == my_passes
assert my_same_text == (run.text == generate(Alphabet(), Letters(), "abc", twenty).text)
# The worst draft costs time, and nothing else. A good one is a matter of speed, a right verifier a matter of truth.

# %% [markdown]
# ## Modules, tests, and your own code
#
# The chapters build small versions of things in cells, and end by comparing them with the package, `tinyllm/`, where the
# real ones live. Each piece is a **module** with an id; its tests are in `tests/`, in the folder of that id.

# %%
from ol.course import MODULES

for module in MODULES.values():
    if module.files:
        print(f"{module.id:6} {module.title:30} {', '.join(module.files)}")
in_map = {name for group in GROUPS.values() for *_, names in group for name in names.split(", ")}
assert in_map - {""} == set(MODULES)

# %% [markdown]
# You can build every one of them yourself. In a terminal (in JupyterLab: File, New, Terminal):
#
# | you type | and get |
# |---|---|
# | `ol` | where you are, and the next step |
# | `ol start M07.6` | a stub to fill in, `work/tinyllm/prob/rejection.py`, and copies of the module's chapters with the solutions emptied |
# | `ol tests M07.6` | what the tests claim, and why each matters |
# | `ol check M07.6` | the verdict on your code |
# | `ol hint M07.6` | one hint more for the first test that fails |
# | `ol diff M07.6` | after you have passed: your code beside the reference |
# | `ol grade M07.6` | how many planted bugs your *own* tests catch |
#
# It works in the folder `work/`, which nothing else touches, and never overwrites what you wrote. In a cell,
# `ol.check("M07.6", rejection_accept=my_accept)` (after `import ol`) asks the tests about one function of your notebook.
#
# You can also just read. Every chapter runs as it is.

# %% [markdown]
# ## Your turn: who guards it?
#
# Chapter 03 will say that a guess is kept when $u < p/q$, and not when $u = p/q$. Somebody changes `<` to `<=` in
# `tinyllm/prob/rejection.py`. Which test says so? Its name is among those that the cell prints (in a terminal,
# `ol tests M07.6` prints the reasons too).

# %% tags=["nbval-ignore-output"]
from ol.catalogue import tests_of
from ol.course import module

names = [test.name for test in tests_of(module("M07.6"))]
for name in names:
    if "accept" in name:
        print(name)
my_guard = None  # your answer, a name in quotes
if my_guard is not None:
    if my_guard not in names:
        print("not yet; there is no test of that name")
    else:
        print("right" if "strict" in my_guard else "not yet; which name speaks of < against <= ?")

# %% tags=["solution"]
# Solution
my_guard = "test_acceptance_is_strict"  # test_acceptance_in_a_try_is_strict guards the same in chapter 03's darts
guard = next(test for test in tests_of(module("M07.6")) if test.name == my_guard)
print(guard.why)
assert "strict" in my_guard and my_guard in names

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_speculative_greedy_equals_greedy` | with any draft, the text is plain decoding's |
# | `test_stats_and_one_pass_per_round` | every pass ends in one token of the model's own |
# | `test_case_11_greedy_speculation_is_greedy_on_the_real_model` | the run at the top, for every draft |
# | `test_acceptance_is_strict` | the answer to the last exercise |
#
# ## If you skip this
#
# Nothing later needs this page. If something does not run, come back to *Is your machine ready?*
#
# ## Going further
#
# - Leviathan, Kalman and Matias, *Fast Inference from Transformers via Speculative Decoding*, ICML 2023, and Chen et al.,
#   *Accelerating Large Language Model Decoding with Speculative Sampling*, 2023: the two papers that the book is about.
# - Xia et al., *Unlocking Efficiency in Large Language Model Inference: A Comprehensive Survey of Speculative Decoding*, 2024:
#   the whole field on a map.
# - Allal et al., *SmolLM2: When Smol Goes Big*, 2025: the model that just spoke.
