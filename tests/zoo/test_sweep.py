"""The milestone on the real model: every request, every draft, every draft length, the same output to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tinyllm import smollm2, zoo
from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import DraftModel, Proposal, speculative_generate
from tinyllm.prob.sampling import UniformSource

GREEDY = SamplingParams(temperature=0, max_tokens=32)
DRAFTS = ("prompt lookup", "n-gram", "model")


class Remembered:
    """A draft's greedy guesses, each made once: a guess of eight ids begins with the guess of fewer."""

    def __init__(self, draft: DraftModel) -> None:
        self.draft = draft
        self.guesses: dict[tuple[int, ...], list[int]] = {}

    def propose(self, ctx: Sequence[int], k: int, rng: UniformSource | None) -> Proposal:
        guess = self.guesses.get(tuple(ctx), [])
        if len(guess) < k:
            guess = self.guesses[tuple(ctx)] = self.draft.propose(ctx, k, rng)[0]
        return guess[:k], None


@pytest.mark.model
@pytest.mark.parametrize("name", [*smollm2.PROMPTS, "chat"])
def test_smollm2_writes_the_same_with_every_draft_and_every_k(name: str) -> None:
    """Speculation may change how long an answer takes, never what it says: here on a model somebody trained for use.

    KIND: differential. Pitfalls: 5, 6, 10.
    """
    model, tok = zoo.smollm2()
    prompt = smollm2.requests(tok)[name]
    plain = generate(model, tok, prompt, GREEDY)
    drafts = smollm2.drafts(model, plain.prompt_ids)
    assert tuple(drafts) == DRAFTS
    # Most of the time would go to 21 layers that guess the same again for every k; the target checks each guess anew.
    drafts["model"] = Remembered(drafts["model"])
    # At k = 0 no draft is asked, so one of them stands for all. The longest guesses come first, to be remembered.
    for kind, k in [(DRAFTS[0], 0), *((kind, k) for kind in DRAFTS for k in range(8, 0, -1))]:
        run = speculative_generate(model, drafts[kind], tok, prompt, GREEDY, k=k)
        assert (run.ids, run.text, run.finish_reason) == (plain.ids, plain.text, plain.finish_reason), (kind, k)
        assert run.logprobs == plain.logprobs, (kind, k)


@pytest.mark.model
@pytest.mark.parametrize("kind", DRAFTS)
def test_each_draft_is_rejected_and_fully_accepted_somewhere(kind: str) -> None:
    """Sameness over rounds that all end alike would show half of it: among the same requests, both ends are taken.

    KIND: unit.
    """
    model, tok = zoo.smollm2()
    endings = set()
    for prompt in smollm2.requests(tok).values():
        draft = smollm2.drafts(model, tok.encode(prompt))[kind]
        run = speculative_generate(model, draft, tok, prompt, GREEDY, k=2)
        endings |= {done.kind for done in run.rounds if len(done.draft) > 1}  # a bonus ends what was all kept
        if len(endings) == 2:
            break
    assert endings == {"correction", "bonus"}
