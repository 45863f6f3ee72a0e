# %% [markdown]
# # 07 What a pass costs
#
# You will count the bytes and the operations of one pass, predict from two measured numbers how its time grows with the
# number of tokens in it, and see how kernels must be built so that more tokens cost little and change no bit.
#
# Speculation rests on one claim: checking five tokens takes hardly longer than producing one. Is it true? That depends on
# the machine, on the form of the weights and on the program, and this chapter measures all three on yours. It needs the
# model's file, like chapter 06.
#
# Two rules make the measurements fair. Everything runs on **one thread**. And the clock counts **processor time**, so that
# other programs on your machine disturb little. Still, your numbers will differ from those printed here.

# %% tags=["needs-model", "nbval-ignore-output"]
import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's matrix product reads these when NumPy is loaded
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # settings that would slow it down
    os.environ.pop(name, None)

import time
from functools import partial

import matplotlib.patches as patches
import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from tinyllm.explore import acceptance, pass_cost
from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.generate import last_logits, new_cache
from tinyllm.num.rng import PCG32
from tinyllm.xfmr import kernels
from tinyllm.xfmr.gguf import read_gguf
from tinyllm.zoo import smollm2, smollm2_path

model, tok = smollm2()
file = read_gguf(smollm2_path())
threads = kernels.threads()
kernels.set_threads(1)
model.forward(np.array([[0]]))  # the first pass on a machine compiles the model's kernels
print(len(file.tensors), "tensors")


def check(name, answer, right, hint, within=0.0):
    """Say at once whether an answer is right. An answer that is still None says nothing."""
    if answer is not None:
        print(f"{name}: right." if abs(answer - right) <= within else f"{name}: not yet. {hint}")


# %% [markdown]
# ## Count
#
# A pass reads every weight once. For each token in it, every weight is used for one multiplication and one addition. So
# the bytes belong to the pass, and the operations belong to the tokens. **Predict:** SmolLM2 has 30 layers and, at its
# end, the **output head**, which makes a logit for each of 49,152 tokens. (It has nothing to do with the heads of
# attention.) What share of the weights is it: 2 %, 20 % or 50 %?

# %%
PARTS = {"head": "token_embd", "attention": "attn_", "feed-forward": "ffn_", "norms": "norm"}
counts, sizes, formats = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0), {part: set() for part in PARTS}
for name, tensor in file.tensors.items():
    part = "norms" if "norm" in name else next(part for part, mark in PARTS.items() if mark in name)
    counts[part] += int(np.prod(tensor.shape))
    sizes[part] += tensor.data.nbytes
    formats[part].add(tensor.format)
weights, bytes_packed = sum(counts.values()), sum(sizes.values())
for part in PARTS:
    print(f"{part:13} {counts[part] / 1e6:6.2f} million weights, {counts[part] / weights:4.0%}; "
          f"{sizes[part] / 1e6:5.1f} MB as {', '.join(sorted(formats[part]))}")
bytes_float, flops = 4 * weights, 2 * weights
print(f"in all {weights / 1e6:.1f} million weights: {bytes_packed / 1e6:.1f} MB in the file, {bytes_float / 1e6:.0f} MB as "
      f"float32; {flops / 1e6:.0f} million operations a token")
assert bytes_packed == model.nbytes() and round(counts["head"] / weights, 2) == 0.21

# %% [markdown]
# A fifth of the weights, and a third of the bytes, since the head is kept in 8 bits and the rest in 4. (The head is also the
# table of embeddings, so it is stored once. A pass looks up one row of it a token, and multiplies with all of it at the
# end.)
#
# Attention over the KV cache comes on top. It reads what the cache holds, 46,080 bytes a position (chapter 06), which is
# little while the text is short.
#
# ## Two limits
#
# No program can be faster than the memory delivers the bytes, nor faster than the processor does the operations. Both
# speeds can be measured: read a large array; multiply two large matrices.

# %%
def best_times(jobs, repetitions=5):
    """The least processor time of each job in seconds, all of them run in turn."""
    found = dict.fromkeys(jobs, np.inf)
    for _ in range(repetitions):
        for name, job in jobs.items():
            started = time.process_time()
            job()
            found[name] = min(found[name], time.process_time() - started)
    return found


# %% tags=["nbval-ignore-output"]
big, square = np.ones(32_000_000, np.float32), np.ones((1024, 1024), np.float32)
speeds = best_times({"read": lambda: big @ big, "multiply": lambda: square @ square})
bandwidth, peak = big.nbytes / speeds["read"], 2 * 1024**3 / speeds["multiply"]
print(f"one thread reads {bandwidth / 1e9:.1f} GB/s and does {peak / 1e9:.0f} GFLOP/s, thousand million float32 operations a second")
for name, n_bytes in (("4 bits", bytes_packed), ("float32", bytes_float)):
    print(f"{name:8} a pass takes at least {1e3 * n_bytes / bandwidth:5.1f} ms for its bytes "
          f"and {1e3 * flops / peak:4.1f} ms a token for its operations")
assert bandwidth > 0 and peak > 0

# %% [markdown]
# **Predict:** you add tokens to a pass. For a while the bytes take longer than the operations, and more tokens are free.
# Then the operations take over. For which weights does that happen first, 4 bits or float32?
#
# This picture of two limits is called a **roofline**.

# %% tags=["nbval-ignore-output"]
figure, axes = new_figure(columns=2, height=2.8)
n = np.arange(1, 25)
free_until = {}
for ax, (name, n_bytes) in zip(axes, (("4 bits", bytes_packed), ("float32", bytes_float))):
    memory, arithmetic = 1e3 * n_bytes / bandwidth, 1e3 * flops / peak * n
    free_until[name] = memory / arithmetic[0]
    ax.plot(n, np.full(n.size, memory), "--", color=PALETTE["draft"], label="bytes")
    ax.plot(n, arithmetic, "--", color=PALETTE["rejected"], label="operations")
    ax.plot(n, np.maximum(memory, arithmetic), color=PALETTE["target"], linewidth=2, label="the larger one")
    ax.set(title=name, xlabel="tokens in the pass", ylim=(0, None))
axes[0].set_ylabel("least time, ms")
axes[0].legend(frameon=False)
show(figure, "The least time of a pass over its tokens: flat while the bytes take longer, then rising with the operations. "
             f"Here operations take over at {free_until['4 bits']:.1f} tokens with 4 bits, {free_until['float32']:.1f} with float32.")
assert free_until["4 bits"] < free_until["float32"]

# %% [markdown]
# With 4 bits, and not by a little: fewer bytes and the same number of operations. The number of tokens at which the two
# are equal is
#
# $$n^* = \frac{\text{bytes of a pass}}{\text{operations of a token}} \cdot \frac{\text{operations a second}}{\text{bytes a second}}.$$
#
# The first factor belongs to the model's file, the second to the machine. Up to $n^*$ a pass is **bound by memory** and
# has room for more tokens at no cost; that room is the **slack** that speculation spends. Beyond it the pass is
# **bound by arithmetic**. Small weights make a single pass fast, and leave less slack. Keep that trade in mind.

# %% [markdown]
# ## Your turn: another machine
#
# A machine reads 50 GB/s and does 500 GFLOP/s. What is $n^*$ for float32 weights (4 bytes and
# 2 operations a weight), and for this file? One decimal will do.

# %%
my_float = my_packed = None  # your answers, numbers

machine_balance = 500e9 / 50e9  # operations a byte
check("float32", my_float, bytes_float / flops * machine_balance, "4 bytes over 2 operations, times 500 over 50.", 0.05)
check("this file", my_packed, bytes_packed / flops * machine_balance, "96.6 million bytes, 269 million operations a token.", 0.05)

# %% tags=["solution"]
# Solution
my_float = 4 / 2 * 500 / 50
my_packed = 96.6 / 269 * 500 / 50
print(f"float32 {my_float:.1f}, this file {my_packed:.1f}")
assert abs(my_float - bytes_float / flops * machine_balance) < 0.05
assert abs(my_packed - bytes_packed / flops * machine_balance) < 0.05

# %% [markdown]
# ## Measure
#
# That is what a perfect program could do. Now three real ones, on the 42 matrices of the model's first six layers:
#
# - **NumPy, float32**: the weights unpacked, and `x @ W.T`. The plain way, and the definition of the result;
# - **ours, float32**: the same numbers, through this package's kernels;
# - **ours, 4 bits**: the kernels on the weights as they are in the file.
#
# $T(n)$ is the time for $n$ tokens. **Predict** $T(5)/T(1)$ for each: near 1, near 2, near 3, or near 5? You may put NumPy
# at 1, since it is bound by memory up to many tokens.

# %%
LAYERS = 6
names = [name for i in range(LAYERS) for name in file.tensors
         if name.startswith(f"blk.{i}.") and len(file.tensors[name].shape) == 2]
packed = kernels.pack([(file.tensors[name].format, file.tensors[name].shape, file.tensors[name].data) for name in names])
floats = [kernels.weight_rows(packed, i, np.arange(file.tensors[name].shape[0])) for i, name in enumerate(names)]
as_float = kernels.pack([("F32", w.shape, w.view(np.uint8)) for w in floats])
print(len(names), "matrices:", f"{packed.data.nbytes / 1e6:.1f} MB in 4 bits, {as_float.data.nbytes / 1e6:.1f} MB as float32")

numbers = PCG32(7).substream("init")
activations = {width: (numbers.uniforms(17 * width).reshape(17, width) - 0.5).astype(np.float32) for width in (576, 1536)}


def by_numpy(rows):
    for w in floats:
        activations[w.shape[1]][:rows] @ w.T  # [rows, outputs]


def by_kernels(matrices, rows):
    for i in range(len(names)):
        table = matrices.table[i : i + 1]  # first byte, format, outputs, inputs
        kernels.product(matrices.data, table, activations[int(table[0, 3])][:rows], 1)


# %% tags=["nbval-ignore-output"]
ROWS = (1, 2, 3, 5, 9)
WAYS = {"NumPy, float32": by_numpy, "ours, float32": partial(by_kernels, as_float), "ours, 4 bits": partial(by_kernels, packed)}
by_numpy(2)  # once without the clock: memory is set aside
T = best_times({(way, rows): partial(work, rows) for way, work in WAYS.items() for rows in ROWS}, 6)
print(f"{'ms':16}" + "".join(f"{f'T({rows})':>8}" for rows in ROWS) + "    T(5)/T(1)")
for way in WAYS:
    print(f"{way:16}" + "".join(f"{1e3 * T[way, rows]:8.1f}" for rows in ROWS) + f"{T[way, 5] / T[way, 1]:12.2f}")
assert T["ours, 4 bits", 1] < T["NumPy, float32", 1] and T["NumPy, float32", 9] < 9 * T["NumPy, float32", 1]

# %% tags=["nbval-ignore-output"]
figure, axes = new_figure(columns=2, height=3.0)
for (way, marker), colour in zip((("NumPy, float32", "s-"), ("ours, float32", "^-"), ("ours, 4 bits", "o-")),
                                 ("draft", "correction", "target")):
    axes[0].plot(ROWS, [1e3 * T[way, rows] for rows in ROWS], marker, color=PALETTE[colour], label=way)
    axes[1].plot(ROWS, [T[way, rows] / T[way, 1] for rows in ROWS], marker, color=PALETTE[colour])
axes[1].plot(ROWS, ROWS, ":", color=PALETTE["line"])
axes[1].text(6.2, 7.2, "separate passes", fontsize=8, ha="right")
axes[0].set(xlabel="tokens in the pass, n", title="T(n), ms", ylim=(0, None))
axes[1].set(xlabel="tokens in the pass, n", title="T(n) / T(1)", ylim=(0, 9.5))
axes[0].legend(frameon=False, fontsize=8)
show(figure, "Left the time of n tokens, right how many times that of one: "
             + "; ".join(f"{way} {T[way, 5] / T[way, 1]:.1f} at five tokens" for way in WAYS) + ".")
assert all(time_taken > 0 for time_taken in T.values())

# %% [markdown]
# Look at NumPy first. The step from one token to two or three is the largest of all, and from there to nine it rises
# slowly. Where you expected free tokens, the second one costs most. What happens there?
#
# ## Why NumPy jumps
#
# One row times a matrix: read each weight, use it, forget it. For several rows the library behind NumPy (OpenBLAS, as a
# rule) switches to another method. It first copies the weights, block by block, into an order that suits the caches, and
# then works on the copies (Goto and van de Geijn 2008). For hundreds of rows the copying is nothing. For two it is most of
# the work. Compare the jump with what a plain copy of the weights takes.

# %% tags=["nbval-ignore-output"]
copies = [np.empty_like(w) for w in floats]
copying = best_times({"copy": lambda: [np.copyto(to, w) for to, w in zip(copies, floats)]}, 4)["copy"]
jump, per_row = T["NumPy, float32", 3] - T["NumPy, float32", 1], (T["NumPy, float32", 9] - T["NumPy, float32", 3]) / 6
print(f"from one token to three: {1e3 * jump:.1f} ms more; each further token: {1e3 * per_row:.1f} ms; "
      f"copying the weights to other memory: {1e3 * copying:.1f} ms")
assert copying > 0
copies.clear()

# %% [markdown]
# ## Memory or arithmetic?
#
# Hold each way against the two limits. *One token*: which share of $T(1)$ is explained by reading the bytes? Near 100 %
# means bound by memory. *A further token*: how many operations a second is that, as a share of the peak? Near 100 % means
# bound by arithmetic.

# %% tags=["nbval-ignore-output"]
count = sum(w.size for w in floats)
for way in WAYS:
    n_bytes = packed.data.nbytes if way == "ours, 4 bits" else 4 * count
    one_more = (T[way, 9] - T[way, 3]) / 6
    print(f"{way:16} one token: {n_bytes / bandwidth / T[way, 1]:4.0%} of the time is its bytes; "
          f"a further token: {2 * count / one_more / 1e9:4.0f} GFLOP/s, {2 * count / one_more / peak:4.0%} of the peak")
assert count == sum(int(np.prod(file.tensors[name].shape)) for name in names)

# %% [markdown]
# Float32 weights are bound by memory at one token, in both programs: most of $T(1)$ is reading. So the roofline promises
# them ten free tokens or so. Neither program delivers. NumPy pays for its copies once. Our float32 kernel reads the weights
# once but takes one token after another, and then it is bound by something the roofline does not know, **waiting**: each
# output is one sum in a fixed order, every addition must wait for the one before it, and that takes several steps of the
# processor. The 4-bit kernel works on four or five tokens at once, so that while one sum waits, others go on.
#
# The 4-bit weights have hardly any free tokens to begin with. Each further token costs arithmetic, close to what the
# processor can do.
#
# A share above 100 % has one of two reasons. The 4-bit products are of small integers, of which a processor does more a
# second than of floats; you will see below why that can be. And NumPy takes rows in groups, so six more rows after the
# third can cost less than six times one row.
#
# The way out is a kernel for **few** tokens, which reads the weights once, as they are in the file, and shares the work of
# unpacking them. How is that built?
#
# ## Thirty-two weights in twenty bytes
#
# "4 bits" is short for this. The file stores weights in **blocks** of 32. A block of the format Q4_1 holds a step $d$ and
# a lowest value $m$, two bytes each, then 32 numbers $q$ from 0 to 15, two in a byte. The weight is $w = d\,q + m$.
#
# **Predict:** how many bits a weight are that really?

# %%
tensor = file.tensors["blk.0.attn_q.weight"]
block = np.array(tensor.data[0, :20])  # the first block of the first row
d, m = block[:4].view(np.float16).astype(np.float32)
low, high = block[4:] & 15, block[4:] >> 4  # byte i holds the weights i and i + 16
q = np.concatenate([low, high]).astype(np.float32)  # [32]
unpacked = d * q + m
print("step", round(float(d), 4), " lowest", round(float(m), 4), " q", q.astype(int).tolist())
print(8 * len(block) / 32, "bits a weight")
assert np.array_equal(unpacked, dequantize(block[None], GGMLQuantizationType.Q4_1)[0])
at = names.index("blk.0.attn_q.weight")
assert np.array_equal(unpacked, floats[at][0, :32])

# %%
figure, (ax,) = new_figure(height=2.8)
for level in range(16):
    ax.axhline(float(d * level + m), color=PALETTE["prompt"], linewidth=0.5)
ax.plot(range(32), unpacked, "o", color=PALETTE["target"], markersize=5)
ax.set(xlabel="weight in the block", ylabel="value")
show(figure, "The 32 weights of one block. Each lies on one of 16 levels, which are d apart and begin at m.")
assert len(set(unpacked.tolist())) <= 16

# %% [markdown]
# Five bits, with the block's own $d$ and $m$. To multiply with a block you need not unpack it to floats at all:
#
# $$\sum_i (d\,q_i + m)\, x_i = d \sum_i q_i x_i + m \sum_i x_i.$$
#
# The sum of the $x_i$ is the same for every output, so it is worked out once. The kernels also put the activations $x$ on
# a grid of 16-bit integers, a step for each block, so that $\sum q_i x_i$ is a sum of **integers**. It has no rounding, and
# the processor does more integer products a step than float ones.

# %%
x = activations[576][:1]  # [1, 576]
on_grid = kernels.plain_rounding(x)
print("the grid moves an activation by at most", f"{np.abs(on_grid - x).max() / np.abs(x).max():.0e}", "of the largest")
assert np.abs(on_grid - x).max() <= np.abs(x).max() / 65_000
first_output = sum(
    float(dd) * float(qq @ xx) + float(mm) * float(xx.sum())
    for dd, mm, qq, xx in (
        (*b[:4].view(np.float16).astype(float), np.concatenate([b[4:] & 15, b[4:] >> 4]).astype(float), xb.astype(float))
        for b, xb in zip(np.array(tensor.data[0]).reshape(-1, 20), on_grid.reshape(-1, 32))
    )
)
from_kernel = kernels.product(packed.data, packed.table[at : at + 1], x, 1)[0, 0]
print(f"by the formula {first_output:.5f}, from the kernel {from_kernel:.5f}")
assert abs(first_output - from_kernel) < 1e-5

# %% [markdown]
# ## Your turn: the other format
#
# The head is stored as Q8_0: blocks of 32 weights in 34 bytes, a float16 $d$ and then 32 signed 8-bit numbers, $w = d\,q$.
# Write the function that unpacks one block. The check runs it on real blocks of the head.

# %%
def my_q8_0(block):
    """uint8 [34] -> float32 [32]"""
    return None  # your answer


head_blocks = np.array(file.tensors["token_embd.weight"].data[:50]).reshape(-1, 34)
if my_q8_0(head_blocks[0]) is not None:
    same = all(np.array_equal(my_q8_0(b), dequantize(b[None], GGMLQuantizationType.Q8_0)[0]) for b in head_blocks)
    print("right." if same else "not yet: take two bytes as float16, the others with .view(np.int8), and multiply as float32")

# %% tags=["solution"]
# Solution
def my_q8_0(block):
    """uint8 [34] -> float32 [32]"""
    return block[:2].view(np.float16).astype(np.float32) * block[2:].view(np.int8).astype(np.float32)


assert all(np.array_equal(my_q8_0(b), dequantize(b[None], GGMLQuantizationType.Q8_0)[0]) for b in head_blocks)
print(len(head_blocks), "blocks of the head, each equal to the gguf package's; bits a weight:", 8 * 34 / 32)

# %% [markdown]
# ## One tile, several tokens
#
# The kernel takes a **tile**, eight outputs side by side, unpacks a block of it, and multiplies with the activations of four
# or five tokens while it is at hand. So bytes and unpacking are paid once, and what grows with the tokens is arithmetic. If
# that is all, the time is a line, $T(n) \approx a + b\,n$. How well does it fit?

# %% tags=["nbval-ignore-output"]
b, a = np.polyfit(ROWS, [1e3 * T["ours, 4 bits", rows] for rows in ROWS], 1)
print(f"T(n) is about {a:.2f} + {b:.2f} n ms, for six layers")
print("measured", [f"{1e3 * T['ours, 4 bits', rows]:.2f}" for rows in ROWS], " line", [f"{a + b * rows:.2f}" for rows in ROWS])
miss = max(ROWS, key=lambda rows: abs(1e3 * T["ours, 4 bits", rows] - a - b * rows))
print(f"the largest miss: {1e3 * T['ours, 4 bits', miss] - a - b * miss:+.2f} ms, at {miss} tokens")
assert b > 0

# %% [markdown]
# Roughly. A tile takes five tokens, or four, or one at a time: for two or three tokens it goes over its weights two or
# three times, so three cost nearly as much as five.

# %% [markdown]
# ## To the bit
#
# Speed is half of the claim. The other half is that a token scored among five others gets **the same logits** as one
# scored alone. **Predict:** is the first row of `x[:5] @ W.T` equal to `x[:1] @ W.T`?

# %% tags=["nbval-ignore-output"]
W, five = floats[at], activations[576][:5]
alone, among = (five[:1] @ W.T)[0], (five @ W.T)[0]
print("NumPy, one row alone and the same among five:", f"{np.count_nonzero(alone != among)} of {len(alone)} numbers differ")
assert np.allclose(alone, among, atol=1e-5)

# %% [markdown]
# Close, but in general not equal, because the two methods add in different orders, and a sum of floats depends on the
# order. You can see that with four numbers.

# %%
four = np.array([1e8, 1, -1e8, 1], dtype=np.float32)
left_to_right = ((four[0] + four[1]) + four[2]) + four[3]
in_two_halves = (four[0] + four[1]) + (four[2] + four[3])
other_order = ((four[0] + four[2]) + four[1]) + four[3]
print("left to right", left_to_right, " two halves", in_two_halves, " large ones first", other_order)
assert (left_to_right, in_two_halves, other_order) == (1, 0, 2)

# %% [markdown]
# A logit that moves in its last bit is harmless, until two candidates are nearly equal. Then another token wins, and from
# there on the text is another. Engines live with it: vLLM's documentation, for one, promises sameness up to the numerics
# of the hardware. Here the order is fixed instead, by three rules:
#
# 1. **A lane is one output.** Eight outputs sit side by side in one vector, and each adds up its own inputs, first to last.
#    No sum is ever spread over lanes.
# 2. **More tokens are more vectors.** A second token gets lanes of its own and goes through the same steps in the same
#    order. Nothing of it enters the first token's sum.
# 3. **Threads share outputs, never a sum.** Each takes whole tiles.

# %%
figure, (ax,) = new_figure(height=3.0)
for tile, colour in ((0, "target"), (1, "draft")):
    for lane in range(8):
        column = 10 * tile + lane
        for step in range(5):
            ax.add_patch(patches.Rectangle((column, step), 0.9, 0.85, color=PALETTE[colour], alpha=0.25 + 0.13 * step))
        ax.annotate("", (column + 0.45, 5.75), (column + 0.45, 0.1), arrowprops={"arrowstyle": "->", "color": PALETTE["line"]})
    ax.text(10 * tile + 4, -0.35, f"tile {tile + 1}: outputs {8 * tile} to {8 * tile + 7}, thread {tile + 1}", ha="center")
ax.text(-0.4, 2.5, "inputs,\nin order", ha="right", va="center")
ax.set(xlim=(-3.5, 18.5), ylim=(6, -1), xticks=[], yticks=[])
ax.spines[["left", "bottom"]].set_visible(False)
show(figure, "Two tiles of eight lanes. In each lane one output adds up its inputs from the first to the last; a thread has whole "
             "tiles. Another token repeats all of this on lanes of its own.")

# %% [markdown]
# In NumPy the rules are five lines. It is slow, but its bits cannot depend on how many rows there are.

# %%
def by_lanes(x, w):
    """x [rows, inputs] times w [outputs, inputs] transposed; every output is one sum over the inputs in order."""
    out = np.zeros((len(x), len(w)), np.float32)  # [rows, outputs]
    for k in range(x.shape[1]):
        out += x[:, k : k + 1] * w[:, k]  # the same input of every output, for every row by itself
    return out


together = by_lanes(five, W)
assert all(np.array_equal(together[r], by_lanes(five[r : r + 1], W)[0]) for r in range(5))
assert np.abs(together - kernels.plain_product(five, W)).max() < 1e-5  # the definition, up to rounding
for matrices in (packed, as_float):
    whole = kernels.product(matrices.data, matrices.table[at : at + 1], activations[576], 1)  # [17, outputs]
    for rows in range(1, 18):
        assert np.array_equal(kernels.product(matrices.data, matrices.table[at : at + 1], activations[576][:rows], 1), whole[:rows])
print("our kernels, 1 to 17 rows, 4 bits and float32: every row has the same bits")

# %% [markdown]
# Attention keeps the same rules: a row looks at its keys in their order, whatever other rows there are. So the claim must
# hold for the whole model. Score a text of 24 tokens in one pass; then the same positions one by one, in chunks of 2, 5
# and 17, after a rollback of foreign tokens, and with all the threads of this machine. **Predict** how many of the 24 times 49,152 logits differ.

# %%
text = "Speculative decoding lets something cheap guess the next few tokens and has the model check them all in one pass, so " \
       "that a good guess saves a pass."
ids = tok.encode(text)[:24]


def in_chunks(size):
    """Logits [24, V] of the text, fed in passes of `size` tokens."""
    cache = new_cache(model, len(ids))
    return np.concatenate([last_logits(model, ids[i : i + size], cache, len(ids[i : i + size])) for i in range(0, len(ids), size)])


whole = in_chunks(len(ids))
for size in (1, 2, 5, 17):
    assert np.array_equal(in_chunks(size), whole)

cache = new_cache(model, len(ids))
last_logits(model, ids[:14], cache, 1)
last_logits(model, ids[5:15], cache, 1)  # ten tokens that do not belong there
cache.truncate(14)
assert np.array_equal(last_logits(model, ids[14:], cache, 10), whole[14:])

kernels.set_threads(threads)
assert np.array_equal(in_chunks(5), whole)
kernels.set_threads(1)
print(whole.size, "logits: none differs in any bit")

# %% [markdown]
# ## Spend the slack
#
# Back to time, and to the whole model. The ratio $T(5)/T(1)$ is what a round of four drafts costs, in plain passes.
# Chapter 12 will derive that with drafts that are right four times in five, such a round emits 3.36 tokens on average.
# The gain is one over the other. **Predict:** which way of multiplying gains most by speculation? And which is fastest with
# it?

# %% tags=["nbval-ignore-output"]
cache = new_cache(model, 64 + 9)
context = (3 * ids)[:64]
last_logits(model, context, cache, 1)


def one_pass(rows):
    """A pass over `rows` tokens after a context of 64, logits for all of them, as verification does it."""
    last_logits(model, ids[:rows], cache, rows)
    cache.truncate(64)


whole_pass = best_times({rows: partial(one_pass, rows) for rows in range(1, 10)}, 3)
tokens = float(acceptance.compute(0.8, 0.0, [4]).tokens[0])
print(f"{'':28}{'T(1) ms':>9}{'T(5)/T(1)':>11}{'gain':>7}{'ms a token with it':>20}")
rows_of = {f"six layers, {way}": (T[way, 1], T[way, 5]) for way in WAYS}
rows_of["whole model, ours, 4 bits"] = whole_pass[1], whole_pass[5]
for way, (one, five_rows) in rows_of.items():  # tokens over the ratio; and the time of a round over its tokens
    print(f"{way:28}{1e3 * one:9.1f}{five_rows / one:11.2f}{tokens * one / five_rows:7.2f}{1e3 * five_rows / tokens:20.2f}")
most = max(rows_of, key=lambda way: rows_of[way][0] / rows_of[way][1])
fastest = min(WAYS, key=lambda way: T[way, 5])
print(f"gains most: {most}; fastest with it, of six layers: {fastest}")
least = max(bytes_packed / bandwidth, flops / peak)
print(f"the whole model's pass over one token takes {whole_pass[1] / least:.1f} times what its bytes and operations need at least")
assert round(tokens, 2) == 3.36 and whole_pass[5] < 3.36 * whole_pass[1]

# %% [markdown]
# Read the table by columns. *Gain* depends on the ratio alone and says nothing about how fast a single pass is. The last
# column is what a reader of the text notices, and there 4 bits are ahead by far.
#
# The last two rows are the same kernels. If six layers have the larger ratio, this is why: in 4 bits they are 13 MB, which
# the cache of a large processor holds from one pass to the next, so that one token is not bound by memory and has no slack.
# The whole model's 97 MB have to come from memory, and while they come, there is time for more tokens. **Slack is waiting
# for bytes.** Whatever makes bytes cheaper (a smaller model, fewer bits, a faster memory) makes a token faster and speculation
# less rewarding; whatever makes arithmetic cheaper does the opposite. A graphics card does a hundred operations and more
# in the time of one byte, and its $T(5)/T(1)$ is near 1.
#
# So the claim from the start, that checking five tokens takes hardly longer than producing one, is a statement about a
# machine, a file and a program. With these, five cost less than 3.36 times one, which is what the assertion in the cell
# says. So four free drafts that are right four times in five pay.
#
# ## Move it
#
# The same for every length: the measured passes over the roofline, and how good free drafts must be to pay for a pass.
# Move the slider and look for the longest pass that pays at $\alpha = 0.5$.

# %% tags=["nbval-ignore-output"]
measured = {
    "pass": {str(rows): {"best_s": seconds} for rows, seconds in whole_pass.items()},
    "bytes": bytes_packed, "flops_per_token": flops, "bandwidth_bytes_per_s": bandwidth, "float32_flops_per_s": peak,
    "machine": {"processor": "this machine", "threads": 1},
}
pass_cost.widget(measured)

# %% tags=["nbval-ignore-output"]
pays = [rows for rows in whole_pass if acceptance.compute(0.5, 0.0, [rows - 1]).tokens[0] >= whole_pass[rows] / whole_pass[1]]
print("the longest pass that pays at alpha 0.5:", max(pays), "tokens; one token alone always does")
assert 1 in pays

# %% [markdown]
# `python bench/pass_cost.py` measures 1 to 16 tokens on all threads, with the clock on the wall.

# %% [markdown]
# ## Your turn: when does it pay?
#
# A program has $T(5)/T(1) = 3$. How good must a free draft be, so that a round of four drafts breaks even? Find the smallest
# $\alpha$, to two decimals, with $1 + \alpha + \alpha^2 + \alpha^3 + \alpha^4 \ge 3$. And for a ratio of 2?

# %%
my_alpha_at_3 = my_alpha_at_2 = None  # your answers

for ratio, mine in ((3, my_alpha_at_3), (2, my_alpha_at_2)):
    if mine is not None:
        emits = [acceptance.compute(a, 0.0, [4]).tokens[0] for a in (mine, mine - 0.01)]
        right = emits[0] >= ratio > emits[1] and mine == round(mine, 2)
        print(f"ratio {ratio}: a round emits {emits[0]:.2f}, " + ("right." if right else "not yet: the smallest, two decimals."))

# %% tags=["solution"]
# Solution
def smallest_alpha(ratio):
    """In hundredths, the first alpha whose round of four drafts emits at least `ratio` tokens."""
    return next(a / 100 for a in range(101) if acceptance.compute(a / 100, 0.0, [4]).tokens[0] >= ratio)


my_alpha_at_3, my_alpha_at_2 = smallest_alpha(3), smallest_alpha(2)
print("ratio 3:", my_alpha_at_3, " ratio 2:", my_alpha_at_2)
assert my_alpha_at_2 < my_alpha_at_3 < 0.8

# %% [markdown]
# ## Your turn: a long text
#
# A pass also reads the cache, 46,080 bytes a position. At how many positions does it read as many bytes of cache as of
# weights? (96,576,768 bytes; round down.)

# %%
my_positions = None  # your answer

check("positions", my_positions, bytes_packed // new_cache(model, 1).nbytes(), "Divide the one by the other.")

# %% tags=["solution"]
# Solution
my_positions = 96_576_768 // 46_080
print(my_positions, "positions, a quarter of what the model can take")
assert my_positions == bytes_packed // new_cache(model, 1).nbytes() and round(model.max_len / my_positions) == 4

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_packed_weights_are_exactly_what_the_gguf_package_reads` | the blocks, for every format |
# | `test_products_agree_with_their_plain_form`, `test_attention_agrees_with_its_plain_form_and_rows_with_themselves_alone` | each kernel against plain NumPy |
# | `test_a_row_of_a_product_has_the_same_bits_alone` | the three rules, for random shapes |
# | `test_rounding_moves_an_activation_by_half_a_step_at_most` | the grid of the activations |
# | `test_threads_do_not_change_a_bit`, `test_a_rollback_leaves_no_trace` | threads and rollbacks |
# | `test_the_real_models_logits_have_the_same_bits_in_every_chunk` | all of it on SmolLM2 |
#
# ## If you skip this
#
# Take two facts along: a pass over five tokens costs more than a pass over one and less than five of them, and a token's
# logits are the same bits in both. The first decides in chapters 12 and 13 whether speculation pays, the second makes their `==` possible.
#
# ## Going further
#
# - Williams, Waterman, Patterson, *Roofline: An Insightful Visual Performance Model for Multicore Architectures*, 2009.
# - Goto and van de Geijn, *Anatomy of High-Performance Matrix Multiplication*, 2008: why the weights are copied first.
# - He et al. (Thinking Machines), *Defeating Nondeterminism in LLM Inference*, 2025: batch-invariant kernels on graphics
#   cards, and what they cost there.
# - Dettmers and Zettlemoyer, *The case for 4-bit precision*, ICML 2023 (arXiv 2212.09720): why four bits.
