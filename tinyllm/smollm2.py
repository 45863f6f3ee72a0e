"""The requests and drafts with which chapters, tests and benchmarks try speculative decoding on SmolLM2.

One request for each kind of text, from what a draft finds easy (output that repeats the input) to what it finds hard,
and the three drafts of `tinyllm.infer.spec` built for one request. Everything is fixed, so runs can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinyllm.infer.spec import DraftModel, ModelDraft, NGramDraft, PromptLookupDraft
from tinyllm.lm.ngram import NGramLM
from tinyllm.tok.bpe import BPETokenizer
from tinyllm.xfmr.llama import Llama

NGRAM_ORDER = 4

PROMPTS = {
    "quoting": (
        "Original: The old bridge over the river Alm was built by three brothers. They carried every stone from the "
        "hill by hand, and it took them eleven years. Today only walkers may cross it.\n"
        "Exact copy: The old bridge over the river Alm"
    ),
    "code editing": (
        "# Before\n"
        "def area(width, height):\n    result = width * height\n    return result\n\n"
        "def volume(width, height, depth):\n    result = width * height * depth\n    return result\n\n"
        "# After, with a docstring in each function\n"
        "def area(width, height):\n"
    ),
    "list continuation": (
        "Planets and their order:\n1. Mercury is planet 1\n2. Venus is planet 2\n3. Earth is planet 3\n4."
    ),
    "plain prose": "On the last evening of the summer, the two friends walked down to the harbour and",
    "multilingual": "English: Good morning, how are you?\nFrançais : Bonjour, comment allez-vous ?\nEspañol:",
    "arithmetic": "3 + 4 = 7\n5 + 6 = 11\n8 + 7 = 15\n9 + 4 = 13\n6 + 8 =",
}
CHAT_QUESTION = "What is the difference between a lake and a pond?"

# What the n-gram draft may learn from: SmolLM2's own continuations of prompts that are not among the requests.
FITTING_PROMPTS = (
    "The library opened its doors at nine, and the first readers",
    "def count_words(text):\n",
    "Things to take on a walk:\n1. Water\n2.",
    "2 + 3 = 5\n4 + 4 =",
)


def requests(tok: BPETokenizer) -> dict[str, str]:
    """The prompts by kind of text, one of them in SmolLM2's chat format."""
    return {**PROMPTS, "chat": tok.chat(CHAT_QUESTION)}


def ngram_draft(texts: Iterable[Sequence[int]], prompt_ids: Sequence[int], vocab_size: int) -> NGramDraft:
    """An n-gram draft of order `NGRAM_ORDER` fitted on `texts` (ids) and on the request's own prompt.

    ValueError for ids outside [0, vocab_size).
    """
    return NGramDraft(NGramLM(NGRAM_ORDER, vocab_size=vocab_size).fit([*texts, prompt_ids]))


def drafts(
    model: Llama, prompt_ids: Sequence[int], texts: Iterable[Sequence[int]], layers: int
) -> dict[str, DraftModel]:
    """The three drafts for one request: prompt lookup, n-gram, and the first `layers` layers of `model`.

    ValueError for ids outside the vocabulary and for a number of layers that `model` does not have.
    """
    return {
        "prompt lookup": PromptLookupDraft(),
        "n-gram": ngram_draft(texts, prompt_ids, model.vocab_size),
        "model": ModelDraft(model.first_layers(layers)),
    }
