# %% [markdown]
# # 06 One token a pass
#
# You will build the loop that makes a language model speak, token by token, with a cache that saves it from doing
# everything twice, and text that appears on the screen as soon as it is certain and not before.
#
# This chapter runs SmolLM2, a real model of 135 million weights, so it needs the model's file. Where it is missing, the
# first code cell fetches it once, if there is a network. If that fails too, the last line that the cell prints says why
# and what to do.

# %% tags=["needs-model", "nbval-ignore-output"]
import matplotlib.patches as patches
import numpy as np

from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.generate import IncrementalDecoder, generate
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams, request_rng, sample, sampling_distribution
from tinyllm.zoo import smollm2

model, tok = smollm2()
model.forward(np.array([[0]]))  # the first pass on a machine compiles the model's kernels
print(model.n_layers, "layers,", model.vocab_size, "tokens")


def check(name, answer, right, hint):
    """Say at once whether an answer is right. An answer that is still None says nothing."""
    if answer is not None:
        same = list(answer) == list(right) if isinstance(answer, list | tuple) else answer == right
        print(f"{name}: right." if same else f"{name}: not yet. {hint}")


# %% [markdown]
# ## What a pass gives
#
# A **pass** takes token ids and returns a row of logits for *each* of them: what the model expects after the ids up to
# there. **Predict** what it expects after "The capital of", and after the whole line.

# %%
prompt = "The capital of France is"
prompt_ids = tok.encode(prompt)
logits = model.forward(np.array([prompt_ids]))  # [1, 5, 49152]
print(prompt_ids, "->", logits.shape)
for row in range(len(prompt_ids)):
    p = sampling_distribution(logits[0, row], SamplingParams())  # [49152]
    best = int(p.argmax())
    print(f"after {tok.decode(prompt_ids[: row + 1])!r:27} {tok.decode([best])!r:9} with probability {p[best]:.2f}")
assert prompt_ids == [504, 3575, 282, 4649, 314] and tok.decode([best]) == " Paris"

# %%
figure, (ax,) = new_figure(height=2.2)
top = np.argsort(-p)[:6]
ax.bar(range(6), p[top], color=PALETTE["target"])
ax.set(xticks=range(6), xticklabels=[repr(tok.decode([i])) for i in top], ylabel="probability", ylim=(0, 1))
show(figure, "The six likeliest tokens after The capital of France is. Paris has three quarters of the probability.")
assert 0.7 < p[top[0]] < 0.85

# %% [markdown]
# With one word to go on, the model has little to say; with five it is fairly sure. Five rows of answers, and to continue
# the text you need only the last. That waste is worth remembering: **one pass can
# judge several places at once**, and speculation will live off it.
#
# ## The plain loop
#
# Take the last row, choose a token, append it, pass everything through again. **Predict:** for a prompt of 5 tokens and
# 12 new ones, how many positions does the model compute in all?

# %%
def without_cache(prompt_ids, n):
    """n greedy tokens, every pass over everything; also the logits that each came from, and the positions computed."""
    ids, rows, computed = list(prompt_ids), [], 0
    for _ in range(n):
        rows.append(model.forward(np.array([ids]))[0, -1])
        computed += len(ids)
        ids.append(int(rows[-1].argmax()))
    return ids[len(prompt_ids) :], rows, computed


plain_ids, plain_rows, plain_computed = without_cache(prompt_ids, 12)
print(repr(tok.decode(plain_ids)), plain_computed, "positions")
assert plain_computed == sum(range(5, 17)) == 126

# %% [markdown]
# 126, for a text of 17 tokens: each position is computed again in every later pass. Is it the same computation each time?
#
# ## What can be kept
#
# A model is a stack of **layers**. In each layer, positions meet in one place only: **attention**. It runs several times
# side by side, and each of these is a **head**. In a head, each position makes a **query**, a **key** and a
# **value**, three short rows of numbers. It compares its query with the keys *up to its own*, and mixes their values by
# how well they fit. Here is that, for one head and four positions.

# %%
def attend(query, keys, values):
    """One position's query [d] over the keys and values [n, d] that it may see."""
    scores = keys @ query / np.sqrt(len(query))  # [n]
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ values  # [d]


queries = np.array([[1.0, 0], [0, 1], [1, 1], [2, 0]])
keys = np.array([[1.0, 1], [0, 2], [1, 0], [3, 1]])
values = np.array([[1.0, 0], [0, 1], [5, 5], [2, 2]])
for t in range(4):
    print(f"position {t} sees {t + 1} keys:", attend(queries[t], keys[: t + 1], values[: t + 1]).round(3))

# %% [markdown]
# **Predict:** a fifth position arrives. Which of the four rows above change? And of positions 0 to 3, what does the
# fifth one need: queries, keys, values?

# %%
before = [attend(queries[t], keys[: t + 1], values[: t + 1]) for t in range(4)]
keys, values = np.vstack([keys, [0, 1]]), np.vstack([values, [1, 4]])
after = [attend(queries[t], keys[: t + 1], values[: t + 1]) for t in range(4)]
print("rows 0 to 3 with a fifth position there:", [row.round(3).tolist() for row in after])
print("position 4 itself:", attend(np.array([1.0, 2]), keys, values).round(3))
assert np.array_equal(before, after)

# %% [markdown]
# None changes, since no position looks ahead. And it needs their keys and values, not their queries: nobody asks a query
# again. So keep keys and values, in every layer, and let each pass compute only what is new. That store is the **KV
# cache**. Check it on the real model: the keys of the first five positions, once alone and once with a sixth behind
# them, in all 30 layers, to the bit.

# %%
def new_cache(positions):
    """An empty cache for this model."""
    return KVCache(model.n_layers, model.n_kv_heads, model.d_head, positions)


five, six = new_cache(8), new_cache(8)
model.forward(np.array([prompt_ids]), None, five)
model.forward(np.array([[*prompt_ids, plain_ids[0]]]), None, six)
print("positions held:", five.seq_len(), "and", six.seq_len())
for layer in range(model.n_layers):
    assert np.array_equal(five.k[layer][:, :, :5], six.k[layer][:, :, :5])
    assert np.array_equal(five.v[layer][:, :, :5], six.v[layer][:, :, :5])
print("keys and values of the first five are the same bits in all", model.n_layers, "layers")

# %% [markdown]
# ## A cache is an array and a number
#
# One array for keys, one for values, for each layer; and how many positions are filled. To forget the last few is to
# lower that number: `truncate` below, one line that looks like nothing. Chapter 11 is about it.

# %%
class MyCache:
    """Keys and values of `max_len` positions; `update` appends to a layer and returns all it holds."""

    def __init__(self, n_layers, n_kv_heads, d_head, max_len):
        self.k = np.zeros((n_layers, 1, n_kv_heads, max_len, d_head), np.float32)
        self.v = np.zeros_like(self.k)
        self.filled = [0] * n_layers

    def seq_len(self):
        return min(self.filled)

    def update(self, layer, k_new, v_new):
        start, end = self.filled[layer], self.filled[layer] + k_new.shape[2]
        self.k[layer, :, :, start:end], self.v[layer, :, :, start:end] = k_new, v_new
        self.filled[layer] = end
        return self.k[layer, :, :, :end], self.v[layer, :, :, :end]

    def truncate(self, n):
        self.filled = [min(n, filled) for filled in self.filled]


def with_cache(prompt_ids, n, cache):
    """n greedy tokens; each pass over the pending tokens only, those that the cache does not hold yet."""
    out, rows, computed, pending = [], [], 0, list(prompt_ids)
    for _ in range(n):
        rows.append(model.forward(np.array([pending]), None, cache)[0, -1])
        computed += len(pending)
        out.append(int(rows[-1].argmax()))
        pending = out[-1:]
    return out, rows, computed


mine = MyCache(model.n_layers, model.n_kv_heads, model.d_head, 17)
ids, rows, computed = with_cache(prompt_ids, 12, mine)
print(repr(tok.decode(ids)), computed, "positions instead of", plain_computed)
assert ids == plain_ids and all(np.array_equal(a, b) for a, b in zip(rows, plain_rows))

# %% [markdown]
# The same text, and not just that: all 12 rows of 49,152 logits are equal **to the bit**. That is not a matter of course.
# A pass over one row and a pass over sixteen could add their numbers in different orders. Chapter 07 shows why ours do not.
#
# In the picture each line is a pass. Blue positions are computed in it, grey ones are read from the cache.

# %%
figure, axes = new_figure(columns=2, height=3.0)
drawn = 7  # passes
for ax, cached in zip(axes, (False, True)):
    for y in range(drawn):
        for x in range(len(prompt_ids) + y):
            new = not cached or y == 0 or x == len(prompt_ids) + y - 1
            ax.add_patch(patches.Rectangle((x, y), 0.9, 0.85, color=PALETTE["target" if new else "prompt"],
                                           alpha=1 if new else 0.45))
    blue = sum(len(prompt_ids) + (0 if cached and y else y) if not cached or y == 0 else 1 for y in range(drawn))
    ax.set(xlim=(-0.3, 12), ylim=(drawn, -0.2), xlabel="position", title=f"{'with' if cached else 'without'} a cache: {blue} computed",
           yticks=np.arange(drawn) + 0.4, yticklabels=range(1, drawn + 1))
axes[0].set_ylabel("pass")
show(figure, "Seven passes after a prompt of five tokens. Without a cache each pass computes every position, 56 in all; with "
             "one the first pass computes five and each later pass a single one, 11 in all.")
assert sum(5 + y for y in range(drawn)) == 56 and 5 + (drawn - 1) == 11

# %% [markdown]
# The token that a pass has chosen is not in the cache yet: it becomes a key and a value only when the *next* pass takes
# it in. Until then it is **pending**. So the cache always lags one token behind the text.

# %%
print("tokens known:", len(prompt_ids) + len(ids), " positions in the cache:", mine.seq_len())
assert mine.seq_len() == len(prompt_ids) + len(ids) - 1
mine.truncate(len(prompt_ids))  # forget all but the prompt, and go on from there
assert np.array_equal(model.forward(np.array([ids[:1]]), None, mine)[0, -1], rows[1])

# %% [markdown]
# ## Your turn: what the cache saves
#
# A prompt of 500 tokens is continued by 100. How many positions are computed with a cache, and how many without?

# %%
my_with = my_without = None  # your answers

check("with", my_with, 500 + sum(1 for token in range(100) if token > 0),
      "The first pass takes the prompt and gives the first token. How many passes are left, over one position each?")
check("without", my_without, sum(500 + token for token in range(100)),
      "The passes are over 500, 501, 502, ... positions; the last one is over 599.")

# %% tags=["solution"]
# Solution
my_with = 500 + 99
my_without = 100 * (500 + 599) // 2  # a hundred passes, 500 to 599
print(my_with, "and", my_without)
assert my_with == 500 + sum(1 for token in range(100) if token > 0)
assert my_without == sum(500 + token for token in range(100))

# %% [markdown]
# ## Your turn: what the cache costs
#
# Several query heads may share one head of keys and values, a **KV head**. Per position the cache holds a key and a value,
# each of `d_head` float32 numbers (4 bytes), for every KV head of every layer.
# How many bytes is that for SmolLM2? And how many positions fit into 100 million bytes? The cell has the sizes; the checks
# ask a real cache.

# %%
print("layers", model.n_layers, " KV heads", model.n_kv_heads, " d_head", model.d_head, " query heads", model.n_heads)
my_bytes = my_positions = None  # your answers

check("bytes", my_bytes, new_cache(1).nbytes(), "Layers times heads times d_head numbers, of 4 bytes, and that twice.")
check("positions", my_positions, 100_000_000 // new_cache(1).nbytes(), "100 million over the bytes of one, rounded down.")

# %% tags=["solution"]
# Solution
my_bytes = model.n_layers * model.n_kv_heads * model.d_head * 4 * 2
my_positions = 100_000_000 // my_bytes
print(f"{my_bytes:,} bytes a position, {my_positions:,} positions")
assert my_bytes == new_cache(1).nbytes()

# %% [markdown]
# At the 8,192 positions that SmolLM2 can take, the cache would be larger than its weights. Three query heads share each
# KV head; without that sharing it would be three times as large again.

# %%
whole = model.max_len * new_cache(1).nbytes()
print(f"cache of {model.max_len:,} positions: {whole / 1e6:.0f} MB; weights: {model.nbytes() / 1e6:.0f} MB")
assert whole > 3 * model.nbytes() and model.n_heads == 3 * model.n_kv_heads

# %% [markdown]
# ## From ids to text, while they arrive
#
# People read text, not ids, and they want it as it comes. Decoding each id by itself looks obvious. **Predict** what you
# see for the parrot, which is one character of four bytes.

# %%
line = "A parrot 🦜 says olá!"
line_ids = tok.encode(line)
print([tok.decode([i]) for i in line_ids])
print("".join(tok.decode([i]) for i in line_ids))
assert "".join(tok.decode([i]) for i in line_ids) != line == tok.decode(line_ids)

# %% [markdown]
# The parrot is spread over three tokens, and none of them holds all of it: the decoder writes U+FFFD, the mark for bytes
# that make no character. Decode all ids so far instead, and give out what is new. But there is a trap: an unfinished
# character shows as that mark at the end, and what you have printed you cannot take back. So an end like that is **held
# back** until it is whole.

# %%
class MyDecoder:
    """Ids in, text out; the pieces concatenate to the decoded whole."""

    def __init__(self, tok):
        self.tok, self.ids, self.given = tok, [], 0

    def push(self, token):
        self.ids.append(token)
        text = self.tok.decode(self.ids)
        certain = len(text) - text.endswith("\ufffd")
        piece = text[self.given : certain]
        self.given = max(self.given, certain)
        return piece

    def flush(self):
        return self.tok.decode(self.ids)[self.given :]


decoder = MyDecoder(tok)
pieces = [decoder.push(i) for i in line_ids] + [decoder.flush()]
print(pieces)
assert "".join(pieces) == line and not any("\ufffd" in piece for piece in pieces)
package = IncrementalDecoder(tok)
assert pieces == [*[package.push(i) for i in line_ids], package.flush()]

# %% [markdown]
# The first of its three tokens gives the space, the second nothing, and with the third the whole parrot comes at once.
# `MyDecoder` decodes everything again for each token;
# the package's `IncrementalDecoder` keeps only the few ids that still matter. What they give out is the same.
#
# ## Stop strings
#
# A request may name strings at which the text is to end, such as a blank line. The same trap again: if the stop string is
# `"\nQ:"` and the text so far ends in `"\n"`, you cannot know yet. So a tail that may become a stop string is held back
# too, and when one is complete, the text is cut **before** it.

# %%
def open_tail(text, stops):
    """Length of the longest end of `text` with which a stop string begins."""
    longest = max((len(stop) - 1 for stop in stops), default=0)
    return next((n for n in range(min(longest, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in stops)), 0)


class MyStops:
    """Text in, text out, cut before the earliest stop string."""

    def __init__(self, stops):
        self.stops, self.held, self.found = [s for s in stops if s], "", False

    def push(self, piece, more=True):
        text = self.held + piece
        hits = [text.find(stop) for stop in self.stops if stop in text]
        if hits:
            self.found, self.held = True, ""
            return text[: min(hits)]
        certain = len(text) - (open_tail(text, self.stops) if more else 0)
        self.held = text[certain:]
        return text[:certain]


# %% [markdown]
# **Predict** what is given out, push by push, for the stop string `"\nQ:"` and the pieces below.

# %%
stops = MyStops(["\nQ:"])
for piece in (" 56", "\n", "Quite", " so.", "\n", "Q", ": next"):
    print(f"{piece!r:9} -> gives {stops.push(piece)!r:9} holds {stops.held!r}")
assert stops.found

# %% [markdown]
# ## Your turn: how much waits?
#
# The stop strings are `"\n\n"` and `"</s>"`. For each of these texts, how many characters at the end must wait:
# `"one\n"`, `"a </s"`, `"1 < 2"`, `"<<"`?

# %%
my_waiting = None  # your answer, a list of four numbers

texts = ["one\n", "a </s", "1 < 2", "<<"]
stops = ["\n\n", "</s>"]
check("waiting", my_waiting, [open_tail(text, stops) for text in texts],
      "Look at the end only: is it the beginning of a stop string? A '<' in the middle is past that chance.")

# %% tags=["solution"]
# Solution
my_waiting = [1, 4 - 1, 0, 1]
print(my_waiting)
assert my_waiting == [open_tail(text, stops) for text in texts]

# %% [markdown]
# ## The whole loop
#
# What else belongs to it? Sampling in place of argmax. An **EOS** token, with which the model says that it is done: it
# ends the request and is not part of it. And a budget. In this order, for each token: choose it; is it EOS; append it;
# does it complete a stop string; is the budget used up?

# %%
def my_generate(prompt, p, on_text=lambda piece: None, eos_ids=()):
    """Continue `prompt`: (text, ids, log-probabilities, why it ended)."""
    pending = tok.encode(prompt)
    cache = MyCache(model.n_layers, model.n_kv_heads, model.d_head, len(pending) + p.max_tokens)
    rng, decoder, stops = request_rng(p.seed or 0), MyDecoder(tok), MyStops(p.stop)
    prompt_ids, ids, logprobs, text, reason = pending, [], [], [], None

    def emit(piece):
        text.append(piece)
        if piece:
            on_text(piece)

    while reason is None:
        row = model.forward(np.array([pending]), None, cache)[0, -1]  # [V]
        token, logprob = sample(row, p, ids, rng, prompt_ids)
        if token in eos_ids:
            reason = "stop"
            break
        ids.append(token)
        logprobs.append(logprob)
        emit(stops.push(decoder.push(token)))
        if stops.found:
            reason = "stop"
        elif len(ids) == p.max_tokens:
            reason = "length"
        pending = [token]
    if not stops.found:
        emit(stops.push(decoder.flush(), more=False))  # what was held back and is certain now
    return "".join(text), ids, logprobs, reason


# %% [markdown]
# ## The same as the package
#
# `tinyllm.infer.generate.generate` is this loop, with checks, timings, and the rules about the end in one place, so that
# the speculative loop can use them as well. Hold ours to it: greedy and sampled, ended by the budget, by EOS and by a
# stop string, and a character that is cut in two by the budget. Equal must be the ids, the text, the *pieces* of text,
# the reason, and the log-probabilities to the bit.

# %%
question = tok.chat("What is a lighthouse? Answer in one sentence.")
requests = {
    "greedy": (prompt, SamplingParams(temperature=0, max_tokens=12), ()),
    "sampled": (prompt, SamplingParams(temperature=0.8, top_p=0.9, seed=3, max_tokens=12, repetition_penalty=1.1), ()),
    "ended by EOS": (question, SamplingParams(temperature=0, max_tokens=40), {tok.eos_id}),
    "ended by a stop string": (prompt, SamplingParams(temperature=0, max_tokens=20, stop=["answer", "xyz"]), ()),
    "half a character": ("🦜🦜🦜🦜🦜🦜", SamplingParams(temperature=0, max_tokens=5), ()),
}
for name, (text, p, eos_ids) in requests.items():
    my_pieces, their_pieces = [], []
    mine = my_generate(text, p, my_pieces.append, eos_ids)
    theirs = generate(model, tok, text, p, on_text=their_pieces.append, eos_ids=eos_ids)
    assert mine == (theirs.text, theirs.ids, theirs.logprobs, theirs.finish_reason), name
    assert my_pieces == their_pieces
    print(f"{name:23} {len(mine[1]):2} tokens, ended by {mine[3]}: {mine[0][-36:]!r}")

# %% [markdown]
# ## SmolLM2 speaks
#
# Now with the stream on the screen. In JupyterLab you see it arrive. The prompt is written as the model was trained to
# see a conversation, which is what `tok.chat` does.

# %%
said = generate(model, tok, tok.chat("Describe the sea in one short sentence."),
                SamplingParams(temperature=0, max_tokens=60), eos_ids={tok.eos_id},
                on_text=lambda piece: print(piece, end="", flush=True))
print(f"\n\n{len(said.ids)} tokens in {len(said.rounds)} passes, ended by {said.finish_reason}")
assert said.finish_reason == "stop" and len(said.rounds) == len(said.ids) + 1

# %% [markdown]
# One pass a token, and one more for the EOS, which is not part of the text. Sampled, the model says something else for each
# seed, and the same for the same seed.

# %%
for seed in (1, 2, 5, 1):
    p = SamplingParams(temperature=0.9, top_p=0.9, seed=seed, max_tokens=12)
    print(f"seed {seed}: {generate(model, tok, 'The old lighthouse', p).text!r}")

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_the_cache_changes_nothing_but_the_work` | with and without a cache: the same output |
# | `test_the_real_model_writes_the_same_with_and_without_a_cache_in_any_chunks` | the same on SmolLM2, to the bit |
# | `test_one_pass_a_token` | passes, and what each is over |
# | `test_truncate_forgets_the_last_positions` | the cache is an array and a number |
# | `test_half_a_character_waits_for_the_other_half`, `test_incremental_decoding_equals_decoding_for_any_bytes` | the decoder |
# | `test_a_stop_string_cuts_the_text_but_keeps_the_id`, `test_a_tail_that_may_become_a_stop_string_waits` | stop strings |
# | `test_streaming_laws` | the pieces of text, for random requests |
#
# ## If you skip this
#
# The speculative loop of chapter 11 is this one with a draft in it. You need two words from here: the cache holds the
# **kept** positions, and the last token is **pending**. `ol start L8.2` hands you cache and loop to build.
#
# ## Going further
#
# - Pope et al., *Efficiently Scaling Transformer Inference*, 2022 (arXiv 2211.05102): what the cache costs at size.
# - Ainslie et al., *GQA*, EMNLP 2023 (arXiv 2305.13245): query heads that share keys and values.
# - Kwon et al., *Efficient Memory Management for Large Language Model Serving with PagedAttention*, SOSP 2023: caches of
#   many requests in one memory.
# - Allal et al., *SmolLM2: When Smol Goes Big*, 2025 (arXiv 2502.02737): the model that speaks here.
