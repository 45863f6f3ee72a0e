"""The requests and drafts with which chapters, tests and benchmarks try speculative decoding on SmolLM2.

One request for each kind of text, from what a draft finds easy (output that repeats the input) to what it finds hard,
and the three drafts of `tinyllm.infer.spec` built for one request. Everything is fixed, so runs can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tinyllm import smollm2_text
from tinyllm.infer.spec import DraftModel, ModelDraft, NGramDraft, PromptLookupDraft
from tinyllm.lm.ngram import NGramLM
from tinyllm.tok.bpe import BPETokenizer
from tinyllm.xfmr.llama import Llama

NGRAM_ORDER = 4
DRAFT_LAYERS = 21  # of SmolLM2's 30; chapter 13 shows the measurement behind it

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

def requests(tok: BPETokenizer) -> dict[str, str]:
    """The prompts by kind of text, one of them in SmolLM2's chat format."""
    return {**PROMPTS, "chat": tok.chat(CHAT_QUESTION)}


@cache
def training_ids() -> list[list[int]]:
    """The text that SmolLM2 wrote for the n-gram draft, one list of ids a continuation."""
    return [entry["ids"] for entry in smollm2_text.read()]


def drafts(model: Llama, prompt_ids: Sequence[int], layers: int = DRAFT_LAYERS) -> dict[str, DraftModel]:
    """The three drafts for one request.

    Prompt lookup; an n-gram model of `training_ids` and the request's own prompt; the first `layers` layers of `model`.
    ValueError for ids outside the vocabulary and for a number of layers that `model` does not have.
    """
    lm = NGramLM(NGRAM_ORDER, vocab_size=model.vocab_size).fit([*training_ids(), prompt_ids])
    return {
        "prompt lookup": PromptLookupDraft(),
        "n-gram": NGramDraft(lm),
        "model": ModelDraft(model.first_layers(layers)),
    }
