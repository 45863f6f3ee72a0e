# %% [markdown]
# # 01 Randomness you can replay
#
# You will build a random generator from one multiplication up, split it into streams that leave each other alone, and
# turn its numbers into tokens, so that the same seed gives the same text on every machine.
#
# A language model does not choose a token. It gives each token a probability, and something has to toss the coin. When
# a test fails on token 317 of a sampled text, you want *that* text again, with every toss. And when you write the same
# decoder in another language, the only strict test is: same seed, same text. Both need chance that can be replayed.
# Python's `random` will not do: nobody wants to port it.

# %%
from fractions import Fraction as F
from itertools import permutations, product

import numpy as np

from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.num.rng import GOLDEN, MULTIPLIER, PURPOSES

# %% [markdown]
# ## A walk that visits every number once
#
# The engine is one line: multiply, add, keep the last bits. Start with 4 bits instead of 64, so that you can see all of
# it. The state is a number from 0 to 15, and one step is
#
# $$s \leftarrow 5 s + c \pmod{16}.$$
#
# **Predict:** with $c = 3$, how many steps until the walk is back where it began? And with $c = 4$?

# %%
def walk(c, start=0, bits=4, multiplier=5):
    """The states from `start` until one repeats."""
    states = [start]
    while (after := (states[-1] * multiplier + c) % 2**bits) not in states:
        states.append(after)
    return states


print("c = 3:", walk(3))
print("c = 4:", walk(4))
assert sorted(walk(3)) == list(range(16)) and len(walk(4)) == 4
assert all((len(walk(c)) == 16) == (c % 2 == 1) for c in range(16))

# %% [markdown]
# With an odd $c$ the walk visits all 16 numbers before it repeats; with an even one it never does. The last line tried
# every $c$. A theorem of Hull and Dobell (1962) says it for any number of bits: modulo $2^b$ with $b \ge 2$, the walk
# has the full length $2^b$ exactly if $c$ is odd and the multiplier is 1 more than a multiple of 4. Ours is such a
# multiplier, and a walk over 64 bits is long enough: at a billion steps a second it repeats after 584 years.

# %%
assert MULTIPLIER == 6364136223846793005 and MULTIPLIER % 4 == 1
years = 2**64 / 1e9 / (365.25 * 24 * 3600)
print(f"{years:.1f} years")
assert 584 < years < 585

# %% [markdown]
# ## Long is not random
#
# Look at the walk for $c = 3$ again, and only at whether each number is even or odd. **Predict** what you will see.

# %%
states = walk(3)
print("last bit:     ", [s % 2 for s in states])
print("last two bits:", [s % 4 for s in states])
assert [s % 2 for s in states] == [0, 1] * 8 and [s % 4 for s in states] == [0, 3, 2, 1] * 4

# %% [markdown]
# Even, odd, even, odd: a coin that always alternates. The last two bits repeat after four steps, the last $j$ bits after
# $2^j$. It cannot be otherwise, since multiplying and adding carry upwards only: the last $j$ bits of the next state
# depend on the last $j$ bits of this one and on nothing else. The high bits are the ones worth having.
#
# So never show the state; show something made of its better bits. Here is the real walk over 64 bits, and beside it the
# function that makes 32 bits of a state. It is explained below; first see what it does.

# %%
MASK64, MASK32 = 2**64 - 1, 2**32 - 1


def step(state, inc):
    """The next state: one multiplication, one addition, 64 bits kept."""
    return (state * MULTIPLIER + inc) & MASK64


def output(state):
    """32 bits made from a state: fold the high bits down, keep 32, turn them round."""
    folded = ((state >> 18) ^ state) >> 27 & MASK32
    turn = state >> 59
    return (folded >> turn | folded << (32 - turn)) & MASK32


# %% [markdown]
# The picture shows 40 steps, one a row, a dark square for a 1. **Predict** which of the three panels shows stripes.

# %%
def lowest_bits(number, count=12):
    return [number >> i & 1 for i in reversed(range(count))]


walked = [2024]
while len(walked) < 40:
    walked.append(step(walked[-1], 109))
panels = {
    "state, top 12 bits": [lowest_bits(s >> 52) for s in walked],
    "state, lowest 12": [lowest_bits(s) for s in walked],
    "output, lowest 12": [lowest_bits(output(s)) for s in walked],
}
figure, axes = new_figure(columns=3, height=3.6)
for ax, (title, rows) in zip(axes, panels.items()):
    ax.imshow(rows, cmap="Greys", aspect="auto", interpolation="nearest")
    ax.set(title=title, xticks=[], yticks=[])
axes[0].set_ylabel("one step a row")
show(figure, "Forty steps, a row each. The state's top bits look like noise. In its lowest bits the columns "
             "are more regular the further right they are, and the last one alternates between 0 and 1. "
             "The lowest bits of the output look like noise.")
assert [s & 1 for s in walked] == [0, 1] * 20

# %% [markdown]
# ## The output is a hash of the state
#
# `output` never shows the state itself. It does three things:
#
# 1. **fold**: `(state >> 18) ^ state` mixes the good high bits into the middle ones;
# 2. **keep**: `>> 27` drops the poor low bits, and the mask keeps 32 of what is left;
# 3. **turn**: rotate those 32 bits by a number from 0 to 31, which the top five bits choose. So even the *place* of a bit
#    depends on the best bits there are.
#
# This is the generator PCG-XSH-RR 64/32 of O'Neill (2014), PCG32 for short. One detail decides whether a port agrees
# with it: the output is made from the state **before** the step. A processor can then work on both at once; and whoever
# steps first gets the same numbers one place early.
#
# Seeding is part of the definition too. The stream number `seq` becomes the odd increment, `2 * seq + 1`; the state
# starts at 0, takes a step, has the seed added, and takes a step again. The pair below is the paper's demonstration:
# seed 42, stream 54.

# %%
def seeded(seed, seq=54):
    """(state, inc) of a new generator."""
    inc = (seq << 1 | 1) & MASK64
    state = step(0, inc)
    return step((state + seed) & MASK64, inc), inc


state, inc = seeded(42)
for _ in range(6):
    print(f"{output(state):08x}", end=" ")
    state = step(state, inc)
assert output(seeded(42)[0]) == 0xA15C02B7 and seeded(0) == (0x9AE4F7499BA72696, 109)

# %% [markdown]
# Those six numbers are published, so any language can be held to them. Now put the three functions into a class that
# remembers where it is. `state` and `set_state` are the bookmark: save it, and you can go on from there tomorrow.

# %%
class Stream:
    """PCG32 as we have it so far."""

    def __init__(self, seed, seq=54):
        self.seed = seed
        self._state, self._inc = seeded(seed, seq)

    def next_u32(self):
        old = self._state
        self._state = step(old, self._inc)
        return output(old)

    def state(self):
        return self._state, self._inc

    def set_state(self, saved):
        self._state, self._inc = saved


one = Stream(7)
bookmark = one.state()
first = [one.next_u32() for _ in range(5)]
one.set_state(bookmark)
assert [one.next_u32() for _ in range(5)] == first
print("replayed:", first)

# %% [markdown]
# ## A number between 0 and 1
#
# A sampler wants a **uniform**: a float in $[0, 1)$, where 0 may come and 1 may not. A float64 holds 53 significant bits,
# so we take 53 random bits as an integer and multiply by $2^{-53}$. One output has only 32 bits; so two are used, 27
# bits of the first and 26 of the second.
#
# Why 53 and not more? **Predict:** take the largest integer of 54 bits and multiply it by $2^{-54}$. What do you get?

# %%
print("53 bits:", (2**53 - 1) * 2.0**-53)
print("54 bits:", (2**54 - 1) * 2.0**-54)
assert (2**53 - 1) * 2.0**-53 < 1 and (2**54 - 1) * 2.0**-54 == 1.0


def uniform(self):
    high, low = self.next_u32() >> 5, self.next_u32() >> 6  # 27 bits, 26 bits
    return (high * 2**26 + low) * 2.0**-53


Stream.uniform = uniform
one = Stream(0)
print("uniforms of seed 0:", one.uniform(), one.uniform())
one = Stream(0)
assert [one.uniform(), one.uniform()] == [0.2803122753265841, 0.4892241428740438]

# %% [markdown]
# With 54 bits the largest value is rounded up to exactly 1, a number that must not come: you will see below that it
# would fall behind the last token. With 53 bits nothing is rounded at all: every value is a whole multiple of
# $2^{-53}$, and if the outputs are evenly spread, so are the $2^{53}$ multiples.
#
# ## An integer below n
#
# A shuffle needs an integer from 0 to $n - 1$. The usual shortcut is `output % n`. To see what is wrong with it, shrink
# the output to 3 bits: it is one of 0 to 7, equally often. **Predict:** how often do 0, 1 and 2 come out of `r % 3`?

# %%
def results(n, size, refuse=0):
    """How often each of 0..n-1 comes out of r % n when r runs over refuse..size-1."""
    counts = [0] * n
    for r in range(refuse, size):
        counts[r % n] += 1
    return counts


print("all of 0..7:     ", results(3, 8))
print("without 0 and 1: ", results(3, 8, refuse=2))
assert results(3, 8) == [3, 3, 2] and results(3, 8, refuse=2) == [2, 2, 2]

# %% [markdown]
# Eight outputs cannot be dealt out evenly to three results. The cure is to refuse the $t = 8 \bmod 3 = 2$ lowest and draw
# again: what is left is a whole number of rounds. With $2^{32}$ outputs, refuse those below $t = 2^{32} \bmod n$.
#
# Is a bias of one in $2^{32}$ worth the trouble? For small $n$ nobody would notice. But take $n = 3 \cdot 2^{30}$, three
# quarters of the range. **Predict:** how much more often does `% n` give a number from the lowest third of results?

# %%
n = 3 * 2**30
twice = 2**32 - n  # outputs n, n + 1, ... fall on results 0, 1, ... a second time
assert twice == n // 3 == 2**32 % n
low = F(2 * twice, 2**32)
print("the lowest third of the results comes with probability", low)
assert low == F(1, 2)

figure, (ax,) = new_figure(height=2.5)
thirds = ["lowest third", "middle third", "highest third"]
places = np.arange(3)
plain = [float(low), float((1 - low) / 2), float((1 - low) / 2)]
ax.bar(places - 0.2, plain, 0.4, color=PALETTE["rejected"], label="output % n")
ax.bar(places + 0.2, [1 / 3] * 3, 0.4, color=PALETTE["kept"], label="with refusals")
ax.set(xticks=places, xticklabels=thirds, ylabel="probability", ylim=(0, 0.6))
ax.set_title("an integer below 3 * 2**30")
ax.legend(frameon=False)
show(figure, "Plain remainders give the lowest third of the results with probability 1/2 and the two "
             "others with 1/4 each. With refusals each third has 1/3.")

# %% [markdown]
# Half of all results, where a third would be right: that is no rounding error. With refusals:

# %%

def below(self, n):
    if not 1 <= n <= 2**32:
        raise ValueError(f"below({n}): n must be from 1 to 2**32.")
    refused = (2**32 - n) % n  # this is 2**32 % n, without 2**32 itself, which 32 bits cannot hold
    while (r := self.next_u32()) < refused:
        pass
    return r % n


Stream.below = below
one = Stream(0)
tens = [one.below(10) for _ in range(8)]
print("below(10) of seed 0:", tens)
assert tens == [1, 3, 4, 2, 5, 7, 2, 6]

# %% [markdown]
# A price comes with it: `below` may draw more than once, so the *number* of draws depends on luck. For the same reason
# the sampler later on uses uniforms, which always take exactly two outputs.
#
# ## A fair shuffle
#
# Walk from the last place down, and swap each with one of the places that are not settled yet, itself included. Three
# items meet `below(3)` and then `below(2)`: six equally likely paths. A common slip is to swap with *any* place each
# time. **Predict:** that gives $3 \cdot 3 \cdot 3 = 27$ paths to 6 orders. Can they be fair?

# %%
def order_after(swaps):
    """The order of abc after swapping these pairs of places."""
    xs = list("abc")
    for i, j in swaps:
        xs[i], xs[j] = xs[j], xs[i]
    return "".join(xs)


orders = ["".join(order) for order in permutations("abc")]
right = [order_after([(2, j), (1, i)]) for j, i in product(range(3), range(2))]
slip = [order_after([(2, j), (1, i), (0, h)]) for j, i, h in product(range(3), repeat=3)]
print("settled places left alone:", {order: right.count(order) for order in orders})
print("any place:                ", {order: slip.count(order) for order in orders})
assert all(right.count(order) == 1 for order in orders)
assert {slip.count(order) for order in orders} == {4, 5}


def shuffle(self, xs):
    for i in range(len(xs) - 1, 0, -1):
        j = self.below(i + 1)
        xs[i], xs[j] = xs[j], xs[i]


Stream.shuffle = shuffle

# %% [markdown]
# No: 27 is not a multiple of 6, so whatever the details, some orders must come more often than others.
#
# ## One stream a purpose
#
# A program tosses coins in several places. **Predict:** part A draws three uniforms and then part B draws one. Somebody
# adds a fourth draw to part A. What happens to B?

# %%
shared = Stream(5)
drawn = [round(shared.uniform(), 4) for _ in range(5)]
print("A draws 3, then B gets", drawn[3], "- A draws 4, then B gets", drawn[4])
assert drawn[3] != drawn[4]

# %% [markdown]
# B changes too, although nobody touched it. So each purpose gets a **substream** of its own, made from the seed and the
# purpose's number, and never from what was drawn so far. This course has five purposes, and decoding uses `sample`.
#
# Plain addition, `seed + number`, would give purpose 2 of seed 0 the seed of purpose 1 of seed 1. Scrambling the sum cannot
# help: equal sums stay equal. So the number is first multiplied by a large odd constant, `GOLDEN` ($2^{64}$ over the golden
# ratio), and seeds as near as 0 and 1 no longer meet.
#
# The sum is then scrambled, by three shifts and two multiplications (SplitMix64's finaliser), so that neighbouring seeds do
# not give neighbouring children. **Predict:** flip one bit of the input. How many of the 64 output bits flip, on average?

# %%
print(PURPOSES)


def mix64(z):
    """Scramble 64 bits. Each step can be undone, so no two inputs collide."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
    return z ^ z >> 31


def child_seed(seed, number):
    return mix64((seed + number * GOLDEN) & MASK64)


flips = [(mix64(z) ^ mix64(z ^ 1 << i)).bit_count() for z in range(1, 101) for i in range(64)]
print(f"flipped on average: {np.mean(flips):.1f} of 64, at least {min(flips)}")
assert 31 < np.mean(flips) < 33
assert child_seed(0, 4) == 0xF88BB8A8724C81EC
assert GOLDEN % 2 == 1 and abs(GOLDEN - 2**64 / ((1 + 5**0.5) / 2)) < 2**12  # as near as a float64 can tell
assert mix64(0 + 2) == mix64(1 + 1) and child_seed(0, 2) != child_seed(1, 1)


def substream(self, purpose):
    number = PURPOSES[purpose]
    return Stream(child_seed(self.seed, number), seq=number)


Stream.substream = substream
parent = Stream(0)
before = parent.substream("sample").uniform()
for _ in range(1000):
    parent.next_u32()
assert parent.substream("sample").uniform() == before
print(f"the sample stream of seed 0 starts with {before:.5f}, whatever the parent has drawn")

# %% [markdown]
# Half of them: after mixing, neighbouring seeds have nothing visible in common. (Visible is the right word. Nobody has
# *proved* streams independent; they pass the tests that people have thought of. And PCG32 is not for secrets: one of
# the exercises runs it backwards.)
#
# ## From a uniform to a token
#
# You have a uniform $u$ and a distribution over tokens $p$. Lay the probabilities end to end along $[0, 1)$. Token $i$ owns
# the piece from $c_{i-1}$ up to $c_i$, where $c_i = p_0 + \dots + p_i$. Find the piece that $u$ falls into: the first token
# with $u < c_i$. That is the **inverse CDF**.

# %%
words = ["cat", "dog", "owl", "eel"]
p = [0.25, 0.5, 0.0, 0.25]
figure, (ax,) = new_figure(height=1.9)
start = 0.0
for word, mass, colour in zip(words, p, ("target", "draft", "rejected", "kept")):
    if mass > 0:
        ax.barh(0, mass, left=start, height=0.5, color=PALETTE[colour], edgecolor="white", linewidth=2)
        ax.text(start + mass / 2, 0, word, ha="center", va="center", color="white", fontsize=12)
    start += mass
for u in (0.1, 0.25, 0.6):
    ax.annotate(f"u = {u}", (u, 0.27), (u, 0.75), ha="center", arrowprops={"arrowstyle": "->"})
ax.set(xlim=(0, 1), ylim=(-0.4, 1), yticks=[], xticks=[0, 0.25, 0.75, 1])
ax.spines["left"].set_visible(False)
show(figure, "The interval from 0 to 1 in pieces: cat up to 0.25, dog up to 0.75, eel up to 1; owl, with "
             "probability 0, has no piece. Arrows: u = 0.1 falls on cat, u = 0.6 on dog, and u = 0.25 on "
             "the border between the two.")

# %% [markdown]
# **Predict** the token for $u = 0$, for $u = 0.25$ exactly, and for $u = 0.75$ exactly.

# %%
def first_above(p, u):
    """The first id whose running sum is above u."""
    running, last = 0.0, None
    for i, mass in enumerate(p):
        if mass > 0:
            running += mass
            last = i
            if u < running:
                break
    return last


for u in (0.0, 0.25, 0.75):
    print(u, words[first_above(p, u)])
assert [words[first_above(p, u)] for u in (0.0, 0.25, 0.75)] == ["cat", "dog", "eel"]

# %% [markdown]
# A border belongs to the piece on its right. That is what strict `<` does, and it matters: the piece $[0, \tfrac14)$
# has length $\tfrac14$ to the last grid point; $[0, \tfrac14]$ would hold one point too many. The owl, with no piece,
# can never come, and 0.75 passes over it.
#
# ### Exactly p, by counting
#
# Does token $i$ come with probability $p_i$? For a real number $u$, uniform on $[0, 1)$, yes: its piece has the length
# $c_i - c_{i-1} = p_i$. But we can *count* it, without any appeal to infinity. Let the $p_i$ be multiples of $1/N$, so
# $c_i = W_i / N$ with whole numbers $W_i$. Let $u$ run over the $N$ midpoints $(j + \tfrac12)/N$. Then
#
# $$c_{i-1} \le \frac{j + \frac12}{N} < c_i \iff W_{i-1} \le j < W_i,$$
#
# so exactly $W_i - W_{i-1} = N p_i$ of the midpoints choose token $i$. The share of midpoints *is* the probability, as a
# fraction. Chapters 03 and 09 prove whole algorithms exact with this trick.

# %%
N = 4
midpoints = [(j + 0.5) / N for j in range(N)]
count = [F(sum(first_above(p, u) == i for u in midpoints), N) for i in range(4)]
print([str(c) for c in count])
assert count == [F(mass) for mass in p]

# %% [markdown]
# (Our generator's uniforms are not all real numbers but the $2^{53}$ multiples of $2^{-53}$. A piece holds as many of them as its
# length says, give or take one, so each probability is met within $2^{-53}$, about $10^{-16}$. What the course calls exact is
# the rule, for a uniform $u$; this last grain belongs to the floats.)
#
# ### When rounding leaves a gap
#
# Ten tokens with 0.1 each. **Predict:** is the running sum 1 at the end? Which token gets the largest uniform there is?

# %%
tenths = [0.1] * 10
running = 0.0
for mass in tenths:
    running += mass
largest = 1 - 2**-53
print("left to right:", running, "- by np.sum:", np.sum(tenths))
print("u < sum:", largest < running, "- token", first_above(tenths, largest))
assert running == largest < 1 and first_above(tenths, largest) == 9
assert first_above([*tenths, 0.0], largest) == 9

# %% [markdown]
# Added left to right, the sum ends a hair below 1, and the largest uniform is not below it. Somebody must take what rounding
# left over: the last token *that can come at all*, never a token of probability 0 behind it. `np.sum` adds in another
# order and says 1. Neither is wrong, but two engines that disagree here give two texts. So the order is fixed: left to right,
# ascending ids, one rounding an addition.
#
# ## A text from a seed
#
# Put it together. The table below says what may follow each word; a text starts with *the* and ends at the full stop. Each
# word takes one uniform of the `sample` stream. **Predict:** two tellers have the same table, but one lists *dog* before *cat*.
# Same seed, same text?

# %%
NEXT = {
    "the": {"cat": 0.5, "dog": 0.25, "owl": 0.25},
    "cat": {"sat": 0.5, "saw": 0.5},
    "dog": {"sat": 0.25, "saw": 0.75},
    "owl": {"slept": 0.5, "saw": 0.5},
    "saw": {"the": 1.0},
    "sat": {".": 0.5, "and saw": 0.5},
    "slept": {".": 1.0},
    "and saw": {"the": 1.0},
}


def tell(seed, table):
    stream, told = Stream(seed).substream("sample"), ["the"]
    while told[-1] != ".":
        follows = table[told[-1]]
        told.append(list(follows)[first_above(follows.values(), stream.uniform())])
    return " ".join(told)


for seed in (0, 1, 2, 0):
    print(f"seed {seed}:", tell(seed, NEXT))
other = NEXT | {"the": {"dog": 0.25, "cat": 0.5, "owl": 0.25}}
print("\nseed 0, dog listed first:", tell(0, other))
assert tell(0, NEXT) == tell(0, NEXT) != tell(0, other)

# %% [markdown]
# The same distribution, and another text, because *dog* now owns another piece of $[0, 1)$. A replay needs the same
# seed, the same order of draws, **and** the same order of ids. In a model's vocabulary each token has a number, and the
# order is ascending.
#
# ## The same as the package
#
# That is all of `tinyllm.num.rng` and the heart of `tinyllm.prob.sampling`, which add checks and compiled loops. Prove
# it: the same states, numbers, shuffles and tokens, for 50 seeds.

# %%
from tinyllm.num.rng import PCG32
from tinyllm.prob.sampling import sample_categorical

for seed in range(50):
    mine, theirs = Stream(seed, seq=seed + 1), PCG32(seed, seq=seed + 1)
    xs, ys = list(range(20)), list(range(20))
    mine.shuffle(xs), theirs.shuffle(ys)
    assert xs == ys and mine.below(2**31 + seed + 1) == theirs.below(2**31 + seed + 1)
    assert [mine.uniform() for _ in range(3)] == theirs.uniforms(3).tolist()
    assert mine.state() == theirs.state()
    for purpose in PURPOSES:
        assert mine.substream(purpose).state() == theirs.substream(purpose).state()
    weights = theirs.uniforms(50) * (theirs.uniforms(50) < 0.7)  # some tokens cannot come
    dist = weights / weights.sum()
    borders = np.cumsum(dist)
    for u in [0.0, largest, *theirs.uniforms(5), *borders, *np.nextafter(borders, 0)]:
        if 0 <= u < 1:
            assert first_above(dist, u) == sample_categorical(dist, u)
print("50 seeds: equal states, draws, shuffles, substreams and tokens, on borders and beside them")

# %% [markdown]
# Whoever draws asks for no more than a method `uniform()`; the package calls that a `UniformSource`. So a test can hand out
# numbers of its own choice, as chapter 08 will.
#
# And one refusal that `first_above` does not make. **Predict** what the package says to $u = 1$, and to weights that do
# not add up to 1.

# %% tags=["nbval-ignore-output"]
refused = 0
for dist, u in (([0.5, 0.5], 1.0), ([0.5, 0.25], 0.3)):
    try:
        print(sample_categorical(dist, u))
    except ValueError as error:  # the sentence is the implementation's own
        print(error)
        refused += 1
assert refused == 2

# %% [markdown]
# ## Your turn: the same seed, another text
#
# Two engines share the seed and the model. Each token of theirs takes two uniforms, one to choose and one for something
# else. Engine A chooses with the first of the pair, engine B with the second. All uniforms are the same. Does the first
# token ever agree? Answer with the number of seeds, out of 0 to 99, for which the first token of both is the same; use `p`
# and `words` above, and `Stream(seed).substream("sample")`. First guess it from the probabilities.

# %%
my_count = None  # your answer, a number
if my_count is not None:
    pairs = [PCG32(seed).substream("sample").uniforms(2) for seed in range(100)]
    agree = sum(sample_categorical(p, a) == sample_categorical(p, b) for a, b in pairs)
    print("right" if my_count == agree else "not yet; compare the tokens that the two uniforms choose")

# %% tags=["solution"]
# Solution
my_count = 0
for seed in range(100):
    stream = Stream(seed).substream("sample")
    a, b = stream.uniform(), stream.uniform()
    my_count += first_above(p, a) == first_above(p, b)
print("the same first token for", my_count, "of 100 seeds; two independent draws agree with probability",
      sum(F(mass) ** 2 for mass in p))
pairs = [PCG32(seed).substream("sample").uniforms(2) for seed in range(100)]
assert my_count == sum(sample_categorical(p, a) == sample_categorical(p, b) for a, b in pairs)
# Equal numbers in another order are another text. That is why chapter 09 fixes the order of its draws.

# %% [markdown]
# ## Your turn: what must be refused
#
# A generator gives 8-bit outputs, 0 to 255, equally often, and you want an integer below 100. How many outputs must be
# refused at least, and how likely is it then that a draw is refused?

# %%
my_refused = None  # your answer, a number
my_chance = None  # your answer, a fraction
if my_refused is not None:
    if not 0 <= my_refused < 256:
        print("refused: not yet; of 256 outputs, from 0 to 255 can be refused")
    else:
        counts = results(100, 256, refuse=my_refused)
        if min(counts) < max(counts):
            print(f"refused: not yet; results come from {min(counts)} to {max(counts)} times")
        else:
            print("refused:", "right" if my_refused < 100 else "not yet; fair, but more than must be refused")
if my_chance is not None:
    fair = my_chance == F(256 - 200, 256)
    print("chance:", "right" if fair else "not yet; how many of 256 equally likely outputs?")

# %% tags=["solution"]
# Solution
my_refused = 256 % 100
my_chance = F(my_refused, 256)
print(my_refused, "are refused, with probability", my_chance)
assert set(results(100, 256, my_refused)) == {2} and my_chance == F(7, 32)

# %% [markdown]
# ## Your turn: run it backwards
#
# Write `step_back(state, inc)`, which undoes `step`. A multiplication by an odd number modulo $2^{64}$ can be undone.
#
# <details><summary>Hint</summary>
# In Python, <code>pow(a, -1, m)</code> is the number that a must be multiplied with to give 1 modulo m.
# </details>

# %%
def step_back(state, inc):
    return None  # your answer


if step_back(1, 1) is not None:
    tried = [(s, step_back(step(s, inc), inc)) for s in (0, 1, 2024, MASK64) for inc in (1, 109)]
    if any(back % 2**64 != s for s, back in tried):
        print("not yet; first undo the addition, then the multiplication")
    else:
        print("right" if all(back == s for s, back in tried) else "right but for the mask: keep 64 bits")

# %% tags=["solution"]
# Solution
def step_back(state, inc):
    return (state - inc) * pow(MULTIPLIER, -1, 2**64) & MASK64


assert all(step_back(step(s, inc), inc) == s for s in (0, 1, 2024, MASK64) for inc in (1, 109))
state, inc = seeded(42)
for _ in range(1000):
    state = step(state, inc)
for _ in range(1000):
    state = step_back(state, inc)
print("1000 steps there and back:", (state, inc) == seeded(42))
# Whoever learns one state knows every earlier number too. Fine for replays, fatal for secrets.

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_known_outputs`, `test_known_uniforms_and_integers_below` | the published numbers |
# | `test_the_output_comes_from_the_old_state` | hash first, then step |
# | `test_a_uniform_is_53_bits_from_two_outputs`, `test_a_uniform_never_reaches_one` | 53 bits, and never 1 |
# | `test_below_is_unbiased` | exactly the lowest $2^{32} \bmod n$ outputs are refused |
# | `test_shuffle_reaches_every_order_evenly` | a settled place is left alone |
# | `test_a_substream_depends_on_the_seed_alone` | no part moves another part's numbers |
# | `test_a_uniform_on_a_boundary_belongs_to_the_next_id` | the strict `<` |
# | `test_every_id_comes_exactly_as_often_as_it_should` | exactly $p$, by midpoints |
# | `test_what_rounding_leaves_over_goes_to_the_last_possible_id` | the gap at the end |
#
# To build both files yourself: `ol start M06.3` and `ol start M07.1` in a terminal.
#
# ## If you skip this
#
# Take with you that a seed fixes every draw, that `request_rng(seed)` is the substream `sample` of that seed, and that
# one uniform picks one token by ascending running sums. The midpoints come back in chapters 03 and 09.
#
# ## Going further
#
# - O'Neill, *PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number Generation*,
#   2014: the generator, and what is wrong with many others.
# - Hull and Dobell, *Random Number Generators*, SIAM Review 4, 1962: when such a walk visits everything.
# - Steele, Lea and Flood, *Fast Splittable Pseudorandom Number Generators*, OOPSLA 2014: the scrambler, and streams that
#   split.
# - Knuth, *The Art of Computer Programming*, volume 2, section 3.4.2: shuffling; section 3.2.1 on the low bits.
# - Devroye, *Non-Uniform Random Variate Generation*, 1986, chapter III: from uniforms to anything discrete.
