# %% [markdown]
# # 04 A model made of counts
#
# You will turn the counts of a small text into a model that gives every next token a probability, work each number as a
# fraction by hand, and then see the package give the same numbers.
#
# It is the cheapest language model there is: no training, no weights, a table you can read. Later it becomes a draft,
# one that guesses the next tokens for a large model at almost no cost. A draft has one duty besides guessing: it must
# say **how likely it thought its guess was**. So the probabilities have to be right, not only the order of the guesses.

# %%
from collections import Counter
from fractions import Fraction as F
from itertools import pairwise, product

import numpy as np

from tinyllm import smollm2_text
from tinyllm.explore.figure import PALETTE, new_figure, show
from tinyllm.infer.sample import SamplingParams, request_rng, sample
from tinyllm.lm.ngram import NGramLM
from tinyllm.num.rng import PCG32


def check(name, answer, right, hint):
    """Say at once whether an answer is right. An answer that is still None says nothing."""
    if answer is not None:
        print(f"{name}: right." if answer == right else f"{name}: not yet. {hint}")


# %% [markdown]
# ## The text
#
# Three sentences, six words. A word is a token here. In front of each sentence stands a **start symbol**, so that the
# model can also learn how sentences begin. It is looked at, but never predicted.

# %%
SENTENCES = ["the cat likes ice cream", "the dog likes ice cream", "ice cream likes the cat"]
sentences = [s.split() for s in SENTENCES]
WORDS = ["the", "cat", "dog", "likes", "ice", "cream"]
V = len(WORDS)
START = "<s>"


def grams(k, texts=sentences):
    """How often each run of k symbols occurs that ends at a word; it may open with the start symbol."""
    counts = Counter()
    for sentence in texts:
        symbols = (START, *sentence)
        for end in range(max(2, k), len(symbols) + 1):
            counts[symbols[end - k : end]] += 1
    return counts


after_the = {gram[1]: count for gram, count in grams(2).items() if gram[0] == "the"}
print("after 'the':", after_the)
assert after_the == {"cat": 2, "dog": 1}

# %% [markdown]
# ## Counting alone says "never"
#
# The obvious model divides: "cat" followed "the" two times out of three, so $p(\text{cat} \mid \text{the}) = \tfrac23$.
#
# **Predict:** what does it say about "the ice cream likes the dog", a sentence made of known words? Multiply the
# probabilities of its words, each given the word before it.

# %%
def by_counting(before, word):
    """The share of `word` among what followed `before`."""
    total = sum(count for gram, count in grams(2).items() if gram[0] == before)
    return F(grams(2)[before, word], total)


sentence = ["the", "ice", "cream", "likes", "the", "dog"]
shares = [by_counting(before, word) for before, word in zip([START, *sentence], sentence)]
print([str(share) for share in shares], "product", np.prod(shares))
assert np.prod(shares) == 0 and shares.count(0) == 1

# %% [markdown]
# Zero, because of a single pair that was not in the text: "the ice". One gap in the table, and everything that contains
# it is called impossible. That is far too sure of itself after three sentences. So something must be put aside for what
# has not been seen. Two questions follow: **how much** to put aside, and **for whom**.

# %% [markdown]
# ## How much: take a little from each
#
# Take the same small piece off every count, the **discount** $D$. Let it be $\tfrac12$ for now. After "the" two
# different words were seen, so $2 \cdot \tfrac12 = 1$ of the 3 counts is saved. The share that is saved is called
# $\gamma$, here $\tfrac13$.
#
# A word that was seen twice loses a quarter of its count, a word seen once loses half of it. That is as it should be:
# what you saw once may well have been chance.

# %%
D = F(1, 2)
T = sum(after_the.values())
own_share = {word: (count - D) / T for word, count in after_the.items()}
gamma = D * len(after_the) / T
print({word: str(share) for word, share in own_share.items()}, "saved:", gamma)
assert sum(own_share.values()) + gamma == 1

# %% [markdown]
# ## For whom: ask about company, not about counts
#
# The saved third should go to words according to how likely they are **when nothing is known to follow**. The obvious
# measure is how often a word occurs at all. Look at "likes" and "cream": each occurs three times.
#
# **Predict:** after "the" comes a word that never followed it in the text. Which of the two would you rather bet on?

# %%
occurs = {word: grams(1)[(word,)] for word in WORDS}
company = {word: {gram[0] for gram in grams(2) if gram[1] == word} for word in WORDS}
for word in WORDS:
    print(f"{word:6} occurs {occurs[word]} times, after {len(company[word])} different symbols: {sorted(company[word])}")
assert occurs["likes"] == occurs["cream"] == 3
assert not {("the", "likes"), ("the", "cream")} & set(grams(2))
assert (len(company["likes"]), len(company["cream"])) == (3, 1)

# %%
figure, (ax,) = new_figure(height=2.8)
at = np.arange(V)
ax.bar(at - 0.2, [occurs[w] for w in WORDS], 0.4, color=PALETTE["prompt"], label="how often it occurs")
ax.bar(at + 0.2, [len(company[w]) for w in WORDS], 0.4, color=PALETTE["target"], label="how many different symbols precede it")
ax.set(xticks=at, xticklabels=WORDS, yticks=range(5), ylim=(0, 4.2))
ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper center")
show(figure, "Likes and cream both occur three times. But likes came after three different words, and cream only ever "
             "after ice.")

# %% [markdown]
# "cream" is frequent, but only because "ice" is: it has never been seen in other company. If "ice" is not there,
# "cream" is a poor bet. "likes" has followed three different words. So the shorter history counts **different
# predecessors** instead of occurrences. This is the idea of Kneser and Ney, and the rest of the chapter is bookkeeping.
#
# Call these numbers the **adjusted counts** $a_1$. They get the same treatment as before: discount each, and hand what
# is saved one step down. Below single words there is nothing left to know, so the last step is even:
# $p_0(w) = \tfrac1V$, a sixth for each word.

# %%
a1 = {word: len(symbols) for word, symbols in company.items()}
T1 = sum(a1.values())
gamma1 = D * len(a1) / T1
p1 = {word: (a1[word] - D) / T1 + gamma1 * F(1, V) for word in WORDS}
print("sum of adjusted counts:", T1, " saved:", gamma1)
print({word: str(value) for word, value in p1.items()})
assert sum(p1.values()) == 1
assert p1["likes"] == F(3, 10) and p1["cream"] == F(1, 10)

# %% [markdown]
# Three times as likely, at the same count. Now put the two together for the history "the":
#
# $$p_2(w \mid \text{the}) = \frac{\max(c(\text{the}\, w) - D,\, 0)}{T} + \gamma\, p_1(w).$$
#
# **Predict** before you run: which unseen word gets most after "the", and does any get nothing?

# %%
p2_the = {word: own_share.get(word, F(0)) + gamma * p1[word] for word in WORDS}
for word in WORDS:
    print(f"p({word:5} | the) = {own_share.get(word, F(0))!s:>4} + 1/3 * {p1[word]!s:>4} = {p2_the[word]}")
assert sum(p2_the.values()) == 1 and min(p2_the.values()) > 0
assert max(set(WORDS) - set(after_the), key=p2_the.get) == "likes"

# %%
figure, (ax,) = new_figure(height=3.0)
kept_part = [float(own_share.get(w, 0)) for w in WORDS]
given_part = [float(gamma * p1[w]) for w in WORDS]
ax.bar(at, kept_part, 0.55, color=PALETTE["kept"], label="left of its own counts")
ax.bar(at, given_part, 0.55, bottom=kept_part, color=PALETTE["bonus"], label="its part of what was saved")
for x, word in enumerate(WORDS):
    counted = float(by_counting("the", word))
    ax.plot([x - 0.35, x + 0.35], [counted, counted], color=PALETTE["line"], linewidth=1.5,
            label="counting alone" if x == 0 else None)
    ax.text(x, kept_part[x] + given_part[x] + 0.012, str(p2_the[word]), ha="center", fontsize=9)
ax.set(xticks=at, xticklabels=WORDS, ylabel="p( . | the)", ylim=(0, 0.8))
ax.legend(frameon=False, fontsize=8)
show(figure, "After the: cat falls from 2/3 to 8/15 and dog from 1/3 to 1/5; the third that both gave up is shared among "
             "all six words, the largest part, three tenths, to likes.")
assert p1["likes"] == max(p1.values()) == F(3, 10)
assert (p2_the["cat"], p2_the["dog"]) == (F(8, 15), F(1, 5))

# %% [markdown]
# ## Your turn: the next word by hand
#
# What does the model say about "likes" after "dog"? "dog" occurs once, and "likes" followed it. Work out $\gamma$ and
# the probability, on paper, and write them as fractions: `F(a, b)` is $\tfrac ab$.

# %%
my_gamma = None  # your answer, a fraction such as F(1, 7)
my_likes = None  # your answer, a fraction such as F(1, 7)

two_words = NGramLM(2, discount=0.5, vocab_size=V).fit([[WORDS.index(w) for w in s] for s in sentences])
from_package = F(two_words.prob([WORDS.index("dog")], WORDS.index("likes"))).limit_denominator(1000)
check("gamma", my_gamma, F(1, 2), "One word was seen after dog, once. How much of that one count is saved?")
check("p(likes | dog)", my_likes, from_package, "What is left of its own count, plus gamma times p1 of likes.")

# %% tags=["solution"]
# Solution
my_gamma = D * 1 / 1  # one kind of word, one count
my_likes = (1 - D) / 1 + my_gamma * p1["likes"]
print("gamma", my_gamma, " p(likes | dog)", my_likes)
assert my_likes == from_package == F(13, 20)

# %% [markdown]
# ## Your turn: ten more copies
#
# Suppose that "the dog likes ice cream" stood in the text eleven times instead of once. The counts change a lot. Which
# of the six values of $p_1$ change? Answer with a list of words, `[]` if none does. Decide before you let the cell
# look.

# %%
my_changed = None  # your answer, a list such as ["cat", "ice"], or []
more = sentences + 10 * [sentences[1]]


def predecessors(word, texts):
    """How many different symbols precede a word."""
    return len({gram[0] for gram in grams(2, texts) if gram[1] == word})


really = [word for word in WORDS if predecessors(word, more) != a1[word]]
check("changed", my_changed, really, "Has any word been seen after a symbol that never preceded it before?")

# %% tags=["solution"]
# Solution
my_changed = []
print("dog occurs", grams(1)[("dog",)], "times, then", grams(1, more)[("dog",)], "times; p1 stays", p1["dog"])
assert my_changed == really
copies = NGramLM(2, discount=0.5, vocab_size=V).fit([[WORDS.index(w) for w in s] for s in more])
after_dog = (11 - D) / 11 + D / 11 * p1["likes"]  # the pair is counted 11 times now, and p1 is the old one
assert np.isclose(copies.prob([WORDS.index("dog")], WORDS.index("likes")), float(after_dog), rtol=1e-14)

# %% [markdown]
# None. Ten copies bring no new company. A draft fitted on a text that repeats itself, as model output does, is not
# carried away by the repetition when it meets something new.
#
# ## Longer histories
#
# With histories of two symbols (a **trigram** model, $n = 3$) the same step is taken twice: from $p_2$ to $p_3$. In
# general, for a history $h$ and the history $h'$ that lacks its first symbol,
#
# $$p_k(w \mid h) = \frac{\max(a_k(h w) - D,\, 0)}{T(h)} + \gamma(h)\, p_{k-1}(w \mid h'), \qquad
# T(h) = \sum_v a_k(h v).$$
#
# As before, $\gamma(h)$ is the share that was saved: $D$ times the number of different words seen after $h$, over
# $T(h)$.
#
# Three rules complete it. (A run of $k$ symbols, like $h w$ here, is called a **gram**.)
#
# 1. The longest grams, $k = n$, count occurrences. All shorter ones count different predecessors.
# 2. A gram that opens with the start symbol has no predecessor, so it counts occurrences at every length.
# 3. A history that nothing followed is dropped for the shorter one: $p_k(w \mid h) = p_{k-1}(w \mid h')$.
#
# The code lets the discount depend on the count: one for grams counted once, one for twice, one for more. Until the
# next section all three are $\tfrac12$.
#
# From here on tokens are ids, as everywhere in this book, and the start symbol is $-1$. **Predict:** "the ice" never occurred
# in the text. What will the trigram model say comes next?

# %%
ids = [[WORDS.index(word) for word in sentence] for sentence in sentences]


def adjusted_counts(n, sequences):
    """{k: {gram: a_k}} for k = 1 to n, from the id sequences."""
    raw = {k: Counter() for k in range(1, n + 1)}
    for sequence in sequences:
        symbols = (-1, *sequence)
        for end, k in product(range(2, len(symbols) + 1), range(1, n + 1)):
            if end >= k:
                raw[k][symbols[end - k : end]] += 1
    adjusted = {n: raw[n]}
    for k in range(1, n):
        company = Counter(longer[1:] for longer in raw[k + 1])  # each longer gram is one different predecessor
        adjusted[k] = {gram: raw[k][gram] if gram[0] == -1 else company[gram] for gram in raw[k]}
    return adjusted


def prob(adjusted, discounts, vocab_size, history, token):
    """p_k(token | history) with k = len(history) + 1, as a fraction; discounts[k]: for counts of 1, 2, 3 or more."""
    k = len(history) + 1
    shorter = prob(adjusted, discounts, vocab_size, history[1:], token) if history else F(1, vocab_size)
    seen = {gram[-1]: a for gram, a in adjusted[k].items() if gram[:-1] == history}
    if not seen:
        return shorter
    given_up = {word: discounts[k][min(a, 3) - 1] for word, a in seen.items()}
    total = sum(seen.values())
    own = max(seen[token] - given_up[token], F(0)) / total if token in seen else F(0)
    return own + sum(given_up.values()) / total * shorter


half = {k: (F(1, 2),) * 3 for k in range(1, 4)}
two, three = adjusted_counts(2, ids), adjusted_counts(3, ids)
assert all(prob(two, half, V, (0,), w) == p2_the[word] for w, word in enumerate(WORDS))
for history in ("likes ice", "likes the", "the ice"):
    h = tuple(WORDS.index(word) for word in history.split())
    row = [prob(three, half, V, h, w) for w in range(V)]
    print(f"after '{history}':", ", ".join(f"{word} {value}" for word, value in zip(WORDS, row)))
    assert sum(row) == 1 and min(row) > 0
ice, cream = WORDS.index("ice"), WORDS.index("cream")
assert row == [prob(three, half, V, (ice,), w) for w in range(V)]  # the row after "the ice"
print("after 'ice' in the model of pairs: cream", prob(two, half, V, (ice,), cream))
assert prob(two, half, V, (ice,), cream) == F(17, 20) > row[cream]
assert (two[2][ice, cream], three[2][ice, cream]) == (3, 2)
assert prob(three, half, V, (WORDS.index("likes"), ice), cream) == F(151, 160) > F(17, 20)

# %% [markdown]
# "cream", as after "ice" alone: rule 3. But it is less sure of it than the model of pairs, since its pairs are no longer the
# longest grams and count company: "ice cream" occurred three times, after two different symbols. That is rule 1. And where
# the history was seen, as "likes ice" was, it is surer.
#
# In the formula every gram gives up the same $D$. The code has room for three discounts. Where do they come from?
#
# ## How much, measured
#
# You need not guess what a count should lose. Split a text in two halves. Take the pairs that occur exactly $j$ times in
# the first half and look how often they occur, on average, in the second. What they come short of $j$ is the
# discount that would have been right.
#
# The repository holds a text that SmolLM2 wrote (you will draft with it later), as ids. Its prompts are split, so that the
# halves are about different things. **Predict:** a pair was seen once in one half. How often, on average, in the other:
# about 0.9, 0.6 or 0.3 times?

# %%
entries = smollm2_text.read()
prompts = sorted({entry["prompt"] for entry in entries})
written = {part: [entry["ids"] for entry in entries if prompts.index(entry["prompt"]) % 2 == part] for part in (0, 1)}
first, second = (Counter(pair for text in written[part] for pair in pairwise(text)) for part in (0, 1))
print(sum(map(len, written[0])), "and", sum(map(len, written[1])), "tokens")

measured = {}
for j in range(1, 7):
    pairs = [pair for pair, count in first.items() if count == j]
    again = sum(second[pair] for pair in pairs) / len(pairs)
    measured[j] = j - again
    print(f"{len(pairs):5d} pairs counted {j} times here occur {again:.2f} times there: they should lose {measured[j]:.2f}")
assert 0.25 < 1 - measured[1] < 0.35 and measured[2] / 2 < measured[1] < measured[2]

# %% [markdown]
# 0.3 times. A pair that was seen once is mostly chance: two thirds of its count should go. A pair seen twice should lose
# more in counts, but less in proportion. So one $D$ for all is too simple.
#
# ## The three discounts
#
# Chen and Goodman estimate the same thing without a second half. Pretend that one occurrence at a time is hidden, and
# ask how many grams counted once, twice, three and four times there are, $n_1$ to $n_4$:
#
# $$Y = \frac{n_1}{n_1 + 2 n_2}, \qquad D_1 = 1 - 2Y\frac{n_2}{n_1}, \qquad D_2 = 2 - 3Y\frac{n_3}{n_2}, \qquad
# D_{3+} = 3 - 4Y\frac{n_4}{n_3}.$$
#
# Each order has its own three. Where a text is too small for the formula (some $n_j$ is 0, or a $D_j$ falls outside
# $(0, j]$), the fixed values $\tfrac12, 1, \tfrac32$ serve.

# %%
def modified_discounts(adjusted_values):
    """(D1, D2, D3+) as fractions, from the adjusted counts of one order."""
    n1, n2, n3, n4 = (sum(a == j for a in adjusted_values) for j in (1, 2, 3, 4))
    if min(n1, n2, n3, n4) > 0:
        Y = F(n1, n1 + 2 * n2)
        found = (1 - 2 * Y * n2 / n1, 2 - 3 * Y * n3 / n2, 3 - 4 * Y * n4 / n3)
        if all(0 < d <= j for j, d in enumerate(found, start=1)):
            return found
    return F(1, 2), F(1), F(3, 2)


pair_discounts = [float(d) for d in modified_discounts(list(adjusted_counts(2, written[0])[2].values()))]
print("from the first half alone:", [round(d, 2) for d in pair_discounts])
print("measured on the second:   ", [round(measured[j], 2) for j in (1, 2, 3)])
print("three sentences:          ", [str(d) for d in modified_discounts(list(two[1].values()))])
assert modified_discounts(list(two[1].values())) == (F(1, 2), F(1), F(3, 2))

# %%
assert all(abs(pair_discounts[j - 1] - measured[j]) < 0.03 for j in (1, 2)) and pair_discounts[2] < measured[3]
figure, (ax,) = new_figure(height=3.0)
js = np.array(list(measured))
ax.plot(js, list(measured.values()), "o", color=PALETTE["target"], markersize=8, label="measured on the other half")
ax.step([0.5, 1.5, 2.5, 6.5], [*pair_discounts[:1], *pair_discounts], where="pre", color=PALETTE["rejected"],
        label="formula, from the first half alone")
ax.set(xlabel="how often the pair was counted", ylabel="what it should lose", xlim=(0.5, 6.5), ylim=(0, 4.5), xticks=js)
ax.legend(frameon=False)
show(figure, "What a pair should lose, measured on the other half, rises with its count. The formula, which has seen the "
             "first half only, meets the measured points for pairs counted once and twice, and is too low from three on.")

# %% [markdown]
# For pairs counted once and twice the formula is within three hundredths of what the second half says, without having
# seen it. From three on it takes too little. It imagines that the rest of the world is like the text it has; but these
# halves are about different things, and a pair that occurs often is often a pair of the topic. How much of the text are
# those pairs?

# %%
often = {pair for pair, count in first.items() if count >= 3}
kinds = len(often) / len(first)
here, there = (sum(part[pair] for pair in often) / part.total() for part in (first, second))
print(f"counted three times or more: {kinds:.0%} of the kinds, {here:.0%} of all pairs here, {there:.0%} there")
assert 0.15 < kinds < 0.25 and here > 0.5 and there > 0.25

# %% [markdown]
# They are about a fifth of the kinds but most of the occurrences, and over a quarter of those in the other half. So the
# model is too sure of them. That costs a draft time, never exactness.
#
# ## Does a longer history help?
#
# **Perplexity** says how many equally likely choices a model seems to face at each token: exp of the mean negative
# log-probability. Fit models of order 1 to 5 on the first half, and take the perplexity on a part of that half and on
# a part of the other.
#
# **Predict** the shape of both curves. Does the one on unseen text come down, level off, or turn up again?

# %%
def perplexity(lm, texts):
    """exp of the mean negative log-likelihood of all ids of the texts."""
    return float(np.exp(sum(lm.nll(text) for text in texts) / sum(map(len, texts))))


ORDERS = (1, 2, 3, 4, 5)
on_own, on_unseen = {}, {}
for n in ORDERS:
    lm = NGramLM(n, vocab_size=49152).fit(written[0])
    on_own[n], on_unseen[n] = perplexity(lm, written[0][:10]), perplexity(lm, written[1][:10])
    print(f"order {n}: {on_own[n]:7.1f} on the text it counted, {on_unseen[n]:7.1f} on the other")
assert all(on_own[n] > on_own[n + 1] for n in ORDERS[:-1])
assert on_unseen[1] > on_unseen[2] > on_unseen[3] > on_unseen[4] and 1 < on_unseen[5] / on_unseen[4] < 1.02

# %%
figure, (ax,) = new_figure(height=2.8)
ax.semilogy(ORDERS, [on_unseen[n] for n in ORDERS], "o-", color=PALETTE["target"], label="unseen text")
ax.semilogy(ORDERS, [on_own[n] for n in ORDERS], "s-", color=PALETTE["draft"], label="the text it counted")
ax.set(xlabel="order n", ylabel="perplexity", xticks=ORDERS, yticks=[1, 10, 100, 1000], yticklabels=["1", "10", "100", "1000"])
ax.legend(frameon=False)
show(figure, "Perplexity over the order of the model. On the text that was counted it falls towards 1, on unseen text it "
             "falls steeply from order 1 to 2, slowly to 4, and then no more.")

# %% [markdown]
# On its own text the model only gets surer, because it remembers. On unseen text a longer history helps until there is
# nothing left to find: at order 5 it is a trifle worse again. It does no more harm than that, since a history that was
# never seen steps aside for a shorter one. That is why the draft of chapter 13 has order 4.
#
# ## Let it write
#
# The same model over single characters, fitted on a few pages of English (the questions that
# SmolLM2 was asked). Each character is drawn from what the model says
# after the last $n - 1$. **Predict** at which $n$ you can first read whole words.

# %%
asked = {entry["prompt"] for entry in entries if entry["kind"] in ("quoting", "prose") and entry["prompt"].isascii()}
english = [prompt.split("user\n")[-1].split("<|im_end|>")[0].replace("\n", " ") for prompt in sorted(asked)]
print(sum(map(len, english)), "characters")
letters = sorted(set("".join(english)))
in_ids = [[letters.index(c) for c in text] for text in english]
by_order = {n: NGramLM(n, vocab_size=len(letters)).fit(in_ids) for n in (1, 2, 3, 4)}


def written_by(n, seed):
    """90 characters that begin with "The ", drawn from the model of order n."""
    rng, made = request_rng(seed), [letters.index(c) for c in "The "]
    while len(made) < 90:
        made.append(sample(by_order[n].logprobs(made), SamplingParams(), [], rng)[0])
    return "".join(letters[i] for i in made)


for n in by_order:
    print(f"{n}:", written_by(n, seed=4))

# %% [markdown]
# One line for each is little to judge by. Let seven seeds write, and count how many pieces between spaces are words of
# the text.

# %%
known = {word for text in english for word in text.split()}
words_among = {}
for n in by_order:
    pieces = [piece for seed in range(7) for piece in written_by(n, seed).split()[1:-1]]  # no "The", no cut end
    words_among[n] = sum(piece in known for piece in pieces) / len(pieces)
    print(f"{n}: {len(pieces)} pieces, {words_among[n]:.0%} of them words")
assert words_among[1] < words_among[2] < 0.15 < words_among[3] < 0.3 and 0.45 < words_among[4] < 0.55

# %% [markdown]
# With $n = 1$ only the letters' frequencies are right. At 2 you can pronounce it, at 3 short words appear among pieces,
# and at 4 about half are words. It never knows what it wants to say. As a draft it need not: its job is to say what
# usually comes next, and the large model decides.
#
# ## The same as the package
#
# `tinyllm.lm.ngram.NGramLM` is this model, arranged for speed: sorted arrays instead of dictionaries, and a whole row
# of log-probabilities in one call. Hold it to the fractions on random texts, orders 1 to 4: all contexts that are
# shorter than what the model reads or as long, and some that are one longer, seen and never seen.

# %%
def my_model(n, sequences, vocab_size):
    """The model of this chapter: a function (context, token) -> p(token | context), a fraction."""
    adjusted = adjusted_counts(n, sequences)
    discounts = {k: modified_discounts(list(adjusted[k].values())) for k in adjusted}

    def p(context, token):
        whole = (-1, *context)  # a context shorter than n - 1 is a whole beginning: the start symbol belongs to it
        return prob(adjusted, discounts, vocab_size, whole[max(0, len(whole) - (n - 1)) :], token)

    return p


numbers = PCG32(4).substream("shuffle")
compared, formula_used = 0, 0
for n, trial in product((1, 2, 3, 4), range(3)):
    texts = [[numbers.below(1 + numbers.below(4)) for _ in range(1 + numbers.below(14))] for _ in range(6)]
    mine, lm = my_model(n, texts, vocab_size=4), NGramLM(n, vocab_size=4).fit(texts)
    formula_used += any(lm.discounts(k) != (0.5, 1.0, 1.5) for k in range(1, n + 1))
    contexts = [c for length in range(n) for c in product(range(4), repeat=length)]
    contexts += [tuple(numbers.below(4) for _ in range(n)) for _ in range(20)]
    for context in contexts:
        row = np.exp(lm.logprobs(context))
        for token in range(4):
            fraction = mine(context, token)
            assert np.isclose(row[token], float(fraction), rtol=1e-12, atol=0), (n, context, token)
            assert np.isclose(lm.prob(context, token), float(fraction), rtol=1e-12, atol=0)
            compared += 1
print(compared, "probabilities, each equal to its fraction;", formula_used, "of 12 models had discounts from the formula")
assert 0 < formula_used < 12

# %% [markdown]
# ## Your turn: discounts from four numbers
#
# In a text, 40 pairs were seen once, 10 twice, 4 three times and 2 four times. Work out $Y$ and the three discounts,
# and answer with a tuple of three fractions. The cell builds counts of that kind and asks the function above.

# %%
my_discounts = None  # your answer, a tuple such as (F(1, 2), F(1), F(3, 2))
right_discounts = modified_discounts(40 * [1] + 10 * [2] + 4 * [3] + 2 * [4])
check("discounts", my_discounts, right_discounts, "Y is 40 / (40 + 2 * 10). Put it into the three formulas, one after the other.")

# %% tags=["solution"]
# Solution
Y = F(40, 40 + 2 * 10)
my_discounts = (1 - 2 * Y * F(10, 40), 2 - 3 * Y * F(4, 10), 3 - 4 * Y * F(2, 4))
print("Y", Y, " discounts", [str(d) for d in my_discounts])
assert my_discounts == right_discounts

# %% [markdown]
# ## What is now checked
#
# | test | claim |
# |---|---|
# | `test_hand_example` | a two-token text, every number by hand |
# | `test_every_history_agrees_with_the_dictionaries` | the package against fractions, all contexts, orders 1 to 4 |
# | `test_a_lower_order_counts_different_predecessors` | company, not occurrences |
# | `test_a_short_context_begins_with_the_start_symbol` | how sentences begin |
# | `test_an_unseen_history_falls_back_whole` | rule 3 |
# | `test_modified_discounts_by_hand`, `test_fixed_discounts_where_the_formula_has_none` | the three discounts |
# | `test_every_history_sums_to_one_and_rules_nothing_out` | a distribution, positive everywhere |
#
# ## If you skip this
#
# All you need later is what comes out: `logprobs(context)`, a row of $V$ log-probabilities that add up to 1 and rule
# nothing out. Chapter 10 makes a draft of it, chapter 12 also a target. `ol start L2.1` hands you the module to build.
#
# ## Going further
#
# - Kneser and Ney, *Improved backing-off for m-gram language modeling*, ICASSP 1995: count company, not occurrences.
# - Chen and Goodman, *An empirical study of smoothing techniques for language modeling*, 1999: the interpolated form and
#   its three discounts, compared with everything else of the time.
# - Church and Gale, *A comparison of the enhanced Good-Turing and deleted estimation methods*, 1991: what a count is worth,
#   measured on a second half.
# - Teh, *A hierarchical Bayesian language model based on Pitman-Yor processes*, ACL 2006: why subtracting a constant is
#   what a prior over texts with many rare words would do.
# - Liu et al., *Infini-gram*, 2024 (arXiv 2401.17377): counts over trillions of tokens, with histories of any length.

