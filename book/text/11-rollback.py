# %% [markdown]
# # 11 Rollback
#
# You will build the speculative loop around the verifier, see what it keeps in the KV cache and what it forgets, and
# find out what a rollback that is off by one does to the text.
#
# A **KV cache** holds, for every position fed so far, what later positions need of it. A target pass over the draft
# writes the draft's positions into the cache before anyone knows whether they are kept. Rejected ones must go.

# %%
import matplotlib.patches as patches
import numpy as np

import ol
from tinyllm.explore import round_player
from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.generate import Round, Transcript, cache_dims, generate
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams, request_rng, token_logprobs
from tinyllm.infer.spec import NGramDraft, PromptLookupDraft, speculative_generate, verify_draft
from tinyllm.lm.ngram import NGramLM

# %% [markdown]
# ## A model whose cache you can read
#
# This toy has one layer with one number a position: its key is the token id itself, so you can read its cache as
# letters. It spells out `abcabd` again and again. Its prediction reads the last five letters that the cache holds and
# no others: after an `ab` it has to look further back than the `ab` to know whether `c` or `d` comes next. If these
# five letters are no run of the endless pattern, it says `e`, so that you see when something foreign is among them.

# %%
PATTERN = "abcabd"
WINDOW = 5  # letters that a prediction reads
V = 5


class Letters:
    """Ids 0 to 4 are the letters a to e."""

    def encode(self, text):
        return ["abcde".index(c) for c in text]

    def decode(self, ids):
        return "".join("abcde"[i] for i in ids)


class SpellingModel:
    """The letter of PATTERN that follows the last WINDOW letters of the cache; `e` when they are no run of it."""

    n_layers, n_kv_heads, d_head, max_len = 1, 1, 1, 64

    def forward(self, ids, positions, cache):
        keys = np.asarray(ids, dtype=np.float32).reshape(1, 1, -1, 1)
        held = keys if cache is None else cache.update(0, keys, keys)[0]
        context = [int(v) for v in held[0, 0, :, 0]]
        new = ids.shape[1]
        logits = np.zeros((1, new, V))
        for row in range(new):
            seen = Letters().decode(context[: len(context) - new + row + 1])
            logits[0, row, "abcde".index(self.next_letter(seen))] = 5.0
        return logits

    def next_letter(self, seen):
        endless = PATTERN * 12
        read = seen[-WINDOW:]
        at = endless.find(read)
        return endless[at + len(read)] if at >= 0 else "e"


model, tok = SpellingModel(), Letters()
greedy = SamplingParams(temperature=0, max_tokens=18)
plain = generate(model, tok, "abcab", greedy)
print(plain.text)
assert "abcab" + plain.text == (PATTERN * 4)[: 5 + 18]

# %% [markdown]
# ## One round, four steps
#
# 1. The draft proposes $x_1 \dots x_m$. With $b$ tokens left to write, $m$ is at most $b - 1$: the round adds a token of
#    the target's own, and that one needs room too.
# 2. The target makes one pass over the **pending** tokens, those not in its cache yet, and then the draft. The last
#    $m + 1$ rows of logits are its predictions after the context and after each draft token.
# 3. `verify_draft` keeps $n$ of the drafts and adds one token $y$ of the target's own.
# 4. The cache is cut back to what is kept: `committed + len(pending) + n` positions. Here `committed` is the number of
#    positions that the cache held before this pass, all of them kept for good by earlier rounds.
#
# **Predict:** is $y$ in the cache after step 4?

# %%
def play(prompt, draft, k, max_tokens, truncate_to=lambda committed, pending, n: committed + pending + n):
    """Speculative decoding, with a record of the cache before and after each rollback."""
    prompt_ids = tok.encode(prompt)
    cache = KVCache(model.n_layers, model.n_kv_heads, model.d_head, 64)
    out, pending, record = [], prompt_ids, []
    while len(out) < max_tokens:
        m = min(k, max_tokens - len(out) - 1)
        draft_ids, _ = draft.propose(prompt_ids + out, m, None) if m > 0 else ([], None)
        committed = cache.seq_len()
        fed = np.array([[*pending, *draft_ids]])
        logits = model.forward(fed, cache.positions(fed.shape[1]), cache)[0, -len(draft_ids) - 1 :]  # [m + 1, V]
        emitted, n = verify_draft(logits, draft_ids, None, greedy, out, None)
        before = cache.k[0][0, 0, : cache.seq_len(), 0].astype(int).tolist()
        cache.truncate(min(truncate_to(committed, len(pending), n), cache.seq_len()))
        record.append((committed, before, cache.seq_len(), tok.decode(draft_ids), n, tok.decode(emitted[-1:])))
        pending = emitted[-1:]
        out += emitted
    return tok.decode(out), record


text, record = play("abcab", PromptLookupDraft(), k=4, max_tokens=18)
for committed, before, after, draft, n, own in record:
    print(f"cache {committed:2d} -> {len(before):2d} -> {after:2d}   draft {draft or '-':5s} kept {n}, own token {own}")
assert text == plain.text

# %% [markdown]
# $y$ is not in the cache: it was never fed. It is the next round's pending token. That is why the cache is, after every
# round, one position shorter than the text.
#
# Each line below is one round. Grey positions were in the cache before; the others were written by the pass. What is
# kept is green, what is rolled back is struck out.

# %%
figure, (ax,) = new_figure(height=3.4)
for y, (committed, before, after, draft, n, own) in enumerate(record):
    for x, token in enumerate(before):
        kind = "prompt" if x < committed else "kept" if x < after else "rejected"
        ax.add_patch(patches.Rectangle((x, -y), 0.9, 0.8, color=PALETTE[kind], alpha=0.85 if x >= committed else 0.5))
        ax.text(x + 0.45, -y + 0.4, tok.decode([token]), ha="center", va="center", fontsize=8)
        if kind == "rejected":
            ax.plot([x, x + 0.9], [-y, -y + 0.8], color=PALETTE["line"])
ax.set(xlim=(-0.5, 24), ylim=(-len(record), 1.2), xlabel="position in the cache", ylabel="round", yticks=[])
rejected = sum(len(before) - after for _, before, after, *_ in record)
show(figure, f"The cache over {len(record)} rounds: it grows with every pass, and the {rejected} positions of rejected "
             "drafts are written and then cut off again.")

# %% [markdown]
# ## A wrong rollback
#
# Suppose the loop forgets to truncate. In the right run above, rounds 1 and 3 reject something. **Predict:** which
# round is the first to emit a wrong letter? The table prints, for each round, the five letters that the first
# prediction of the pass reads, beside the five it should read: the last five of the text.

# %%
forgetful, wrong_record = play("abcab", PromptLookupDraft(), 4, 18, truncate_to=lambda c, pending, n: 10**6)
first = next(i for i in range(18) if forgetful[i] != plain.text[i])
print("right:", plain.text)
print("wrong:", forgetful, "- first wrong letter at", first)
assert forgetful != plain.text
written, reads = "abcab", []
for number, (_, before, _, draft, n, own) in enumerate(wrong_record[:4], start=1):
    reads.append((tok.decode(before[: len(before) - len(draft)])[-WINDOW:], written[-WINDOW:]))
    print(f"round {number}: cache {tok.decode(before):18s} reads {reads[-1][0]}, should read {reads[-1][1]}; "
          f"draft {draft or '-':4s} kept {n}, own token {own}")
    written += draft[:n] + own
assert [read == right for read, right in reads] == [True, True, True, False]
emitted = [n + 1 for *_, n, _ in wrong_record]
assert sum(emitted[:3]) == first  # the first wrong letter is the first one of round 4

# %% [markdown]
# In round 4. From round 1 on the cache is wrong, for the rejected `cab` stays in it. But the model reads five letters,
# and luck covers the mistake up: the text before the leftover ends in `cab` as well. So round 2 reads exactly the
# letters it should, although all the letters after the leftover stand at wrong positions, and so does round 3. What
# round 3 leaves behind is `da`, with `ab` before it and `c` after it: these five letters are no run of the pattern.
# This is why such a bug passes a short test: the cache is wrong from the first rejection on, and the text shows it only
# when a prediction depends on what was left behind.
#
# The other mistake is to count the target's own token as cached. Then one rejected position stays, where the forgetful loop left them
# all. **Predict:** does this smaller mistake show later in the text, or sooner?

# %%
off_by_one, its_record = play("abcab", PromptLookupDraft(), 4, 18, truncate_to=lambda c, pending, n: c + pending + n + 1)
first_one_off = next(i for i in range(18) if off_by_one[i] != plain.text[i])
print("right:", plain.text)
print("wrong:", off_by_one, "- first wrong letter at", first_one_off)
_, before, _, draft, _, own = its_record[1]
reads = tok.decode(before[: len(before) - len(draft)])[-WINDOW:]
print(f"round 2: cache {tok.decode(before)}, reads {reads}, should read {('abcab' + off_by_one)[: 5 + first_one_off][-WINDOW:]}")
assert first_one_off < first

# %% [markdown]
# Sooner. The forgetful loop left the whole of `cab` behind, which reads like the text before it. One `c` that is left behind
# reads like nothing: the model sees `cabcd`, which is no run of the pattern.

# %% [markdown]
# ## One stream for everybody
#
# So far nothing was drawn. When the request samples, draft and verifier share **one** generator, the request's own, in the order
# of the program: first the draft draws its $m$ ids, then every position that the verifier visits takes two uniforms, and a
# fully kept draft one more for the bonus. A draft that does not draw takes none, and at temperature 0 the draft gets no
# generator at all, which asks it for its greedy guess.
#
# **Predict:** an n-gram draft proposes 3 ids, and the second is rejected. How many uniforms has the round used?

# %%
class Watched:
    """The request's generator, with a note of who drew."""

    def __init__(self, seed):
        self.rng, self.who, self.notes = request_rng(seed), "draft", []

    def uniform(self):
        self.notes.append(self.who)
        return self.rng.uniform()


counted = NGramDraft(NGramLM(2, vocab_size=V).fit([tok.encode(PATTERN * 4)]))
warm = SamplingParams(temperature=1.0)
found = {}
for seed in range(200):
    rng, context = Watched(seed), tok.encode("abcab")
    ids, q = counted.propose(context, 3, rng)
    rng.who = "verifier"
    rows = model.forward(np.array([[*context, *ids]]), None, None)[0, -4:] / 3  # a little less sure of itself, [m + 1, V]
    _, kept = verify_draft(rows, ids, q, warm, [], rng)
    found[kept] = rng.notes.count("draft"), rng.notes.count("verifier")
    assert rng.notes == sorted(rng.notes)  # the draft first
for kept, (by_draft, by_verifier) in sorted(found.items()):
    print(f"kept {kept} of 3: {by_draft} draws by the draft, then {by_verifier} by the verifier")
assert found == {0: (3, 2), 1: (3, 4), 2: (3, 6), 3: (3, 7)}

# %% [markdown]
# Seven: three, and two for each of the two positions visited. An engine in another language that follows this order writes
# the same ids from the same logits and the same seed, and that is how one checks it.
#
# ## The same as the package
#
# Here is the whole loop, for any model, tokenizer and draft, greedy or sampled. `Transcript` is the package's one place for
# the rules of chapter 06, which both loops share: what an EOS does, where a stop string cuts, when the budget is used up. It
# says how much `room` is left, and takes the tokens one by one.

# %%
def my_speculative_generate(target, draft, tok, prompt, p, k=4, eos_ids=()):
    """Rounds until the transcript says that it is over."""
    dims = cache_dims(target)
    out = Transcript(tok, prompt, p, dims.max_len, eos_ids)
    cache, rng, pending = KVCache(*dims), request_rng(p.seed or 0), out.prompt_ids
    drafted = accepted = passes = 0
    while out.finish_reason is None:
        m = min(k, out.room() - 1)
        asked = None if p.temperature == 0 else rng
        ids, q = draft.propose(out.prompt_ids + out.ids, m, asked) if m > 0 else ([], None)  # 1
        committed, fed = cache.seq_len(), np.array([[*pending, *ids]])
        rows = target.forward(fed, cache.positions(fed.shape[1]), cache)[0, -len(ids) - 1 :]  # 2: [m + 1, V]
        emitted, n = verify_draft(rows, ids, q, p, out.ids, rng, out.prompt_ids)  # 3
        cache.truncate(committed + len(pending) + n)  # 4
        pending, passes = emitted[-1:], passes + 1
        drafted, accepted = drafted + len(ids), accepted + n
        for row, token in zip(rows, emitted):
            if out.finish_reason is None:
                out.add(token, float(token_logprobs(row, p, out.ids, out.prompt_ids)[token]))
        out.end_round(Round(tuple(ids), n, emitted[-1], "correction" if n < len(ids) else "bonus"))
    rate = accepted / drafted if drafted else 0.0
    return out.result(drafted=float(drafted), accepted=float(accepted), acceptance_rate=rate, target_calls=float(passes))


for k in range(9):
    mine = my_speculative_generate(model, PromptLookupDraft(), tok, "abcab", greedy, k=k)
    spec = speculative_generate(model, PromptLookupDraft(), tok, "abcab", greedy, k=k)
    assert mine.ids == spec.ids == plain.ids and mine.rounds == spec.rounds and mine.logprobs == spec.logprobs
    assert spec.text == plain.text and spec.finish_reason == plain.finish_reason
    assert spec.stats["target_calls"] <= len(plain.ids)
    print(f"k {k}: {int(spec.stats['target_calls']):2d} target passes, acceptance rate "
          f"{spec.stats['acceptance_rate']:.2f}")
played = [(draft, n, own) for *_, draft, n, own in record]  # by the loop at the top of the page, with k = 4
theirs = speculative_generate(model, PromptLookupDraft(), tok, "abcab", greedy, k=4).rounds
assert played == [(tok.decode(r.draft), r.accepted, tok.decode([r.token])) for r in theirs]
for seed in range(50):
    settings = SamplingParams(seed=seed, max_tokens=12, temperature=2.0)
    mine = my_speculative_generate(model, counted, tok, "abcab", settings, k=3)
    assert mine.ids == speculative_generate(model, counted, tok, "abcab", settings, k=3).ids
print("sampled, 50 seeds: the same ids")

# %% [markdown]
# Every round emits $n + 1$ tokens, and that is at least one. So speculation never takes more target passes than plain
# decoding; with $k = 0$ it *is* plain decoding, 18 passes for 18 tokens. And the report: `drafted`, `accepted`, their ratio
# `acceptance_rate`, and `target_calls`, beside what `generate` reports.
#
# The course's tests look at each pass: where it began, what it was fed, what it saw in the cache. Ask the two that speak of
# rollback and of the end. (The others, with callbacks and all the ways to end, take longer: `ol check L8.6` in a terminal runs
# them all on your own file.)

# %% tags=["nbval-ignore-output"]
verdict = ol.check("L8.6", only="test_rejected_drafts_are_rolled_back test_eos_stop_and_budget",
                   speculative_generate=my_speculative_generate)
assert verdict
verdict

# %% [markdown]
# ## Play a real one
#
# Here is a recorded generation of SmolLM2 with the n-gram draft, three steps a round: draft, target pass, verdict. **Predict** at each
# pass which of the new cells will be cut off, then take the next step; the outlined token is the pending one.

# %% tags=["nbval-ignore-output"]
round_player.widget()

# %% [markdown]
# ## What the loop stands on
#
# | module | what the loop takes from it | chapter |
# |---|---|---|
# | M06.3 randomness | the request's generator, `request_rng(seed)`, on a stream of its own | 01 |
# | M11.1 distances | why $\alpha = 1 - \mathrm{TV}$; only to be read | 02 |
# | M07.6 rejection sampling | `speculative_step`: the sampled verdict on one position | 03 |
# | L2.1 n-gram model | `logprobs`, from which `NGramDraft` guesses | 04 |
# | L8.1 sampling | `sampling_distribution`, which is $p_i$; `sample` for greedy choices and the bonus; `token_logprobs` | 05 |
# | L8.2 cache and `generate` | `KVCache.truncate` for the rollback, `cache_dims` for its size, `Generation` for the result; and `generate` itself, with which every result is compared | 06 |
# | L8.6, this one | `verify_draft`, the drafts, the loop | 08 to 14 |
# | L10.8, an engine in another language | is held to `verify_draft` on shared logits, draw by draw, to the same lookups, and to greedy equality: `ol conform` | |

# %% [markdown]
# ## Your turn: the length of the cache
#
# The prompt has 5 tokens and the first round drafts 4, of which 1 is kept. How many positions does the cache hold after
# the pass, and after the rollback? How many tokens are known by then? The cell plays such a round and compares; fill in
# as many of the three as you like.

# %%
after_pass = after_rollback = known = None  # your answers


class Guess:
    """A draft that is right once and then wrong."""

    def propose(self, ctx, k, rng):
        return tok.encode("dcab")[:k], None


_, before, after, draft, n, own = play("abcab", Guess(), 4, 5)[1][0]
for what, answer, right in (
    ("after the pass", after_pass, len(before)),
    ("after the rollback", after_rollback, after),
    ("known tokens", known, len("abcab" + draft[:n] + own)),
):
    if answer is not None:
        print(f"{what}: " + ("right" if answer == right else "not yet; go through the four steps again"))

# %% tags=["solution"]
# Solution
after_pass = 0 + 5 + 4
after_rollback = 0 + 5 + 1
known = 5 + 1 + 1  # the prompt, the kept draft, the target's own token
print(after_pass, after_rollback, known)
assert (n, len(draft)) == (1, 4) and (after_pass, after_rollback) == (len(before), after)
assert known == after_rollback + 1 == len("abcab" + draft[:n] + own)

# %% [markdown]
# ## Your turn: a round that keeps everything
#
# When all $m$ drafts are kept, how many positions does `truncate` have to cut off? The cell looks at the rounds of the
# record that kept a whole draft.

# %%
my_answer = None  # how many positions are cut off
full = [(before, after) for _, before, after, draft, n, _ in record if draft and n == len(draft)]
if my_answer is not None:
    right = all(len(before) - after == my_answer for before, after in full)
    print("right" if right else "not yet; compare what the pass wrote with what step 4 keeps")

# %% tags=["solution"]
# Solution
my_answer = 0
print([len(before) - after for before, after in full], "- nothing: committed + pending + m is what the cache holds")
assert full and all(len(before) - after == my_answer for before, after in full)

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_rejected_drafts_are_rolled_back` | every target pass starts at the kept length, with the right token |
# | `test_model_draft_syncs_its_cache` | a model draft keeps its own cache right too |
# | `test_stats_and_one_pass_per_round` | one target pass a round |
# | `test_eos_stop_and_budget` | no round emits more than the budget allows |
# | `test_the_sampled_loop_equals_the_loop_by_hand` | one stream, in program order, against a loop without a cache |
#
# ## If you skip this
#
# The rest of the book uses `speculative_generate` as it is. If your own loop gives text that is right for a while after a
# rejection and then goes wrong, come back here.
#
# ## Going further
#
# - Kwon et al., *Efficient Memory Management for Large Language Model Serving with PagedAttention*, 2023: where an engine
#   keeps its caches, and what truncating one means there.
# - Miao et al., *SpecInfer*, 2023: a tree of drafts, of which one path stays in the cache. SGLang does this in production.
