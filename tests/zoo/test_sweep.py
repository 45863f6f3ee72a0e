"""The milestone on the real model: every request, every draft, every draft length, the same output to the bit."""

from __future__ import annotations

import pytest

from tinyllm import smollm2, zoo
from tinyllm.infer.generate import Generation, generate
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import speculative_generate

GREEDY = SamplingParams(temperature=0, max_tokens=32)


@pytest.mark.model
@pytest.mark.parametrize("kind", ["prompt lookup", "n-gram", "model"])
def test_smollm2_writes_the_same_with_every_draft_and_every_k(kind: str) -> None:
    """Speculation may change how long an answer takes, never what it says: here on a model somebody trained for use.

    Somewhere in the sweep each draft is rejected and fully accepted, so both ends of a round were taken.
    KIND: differential. Pitfalls: 5, 6, 10.
    """
    model, tok = zoo.smollm2()
    runs: list[Generation] = []
    for name, prompt in smollm2.requests(tok).items():
        plain = generate(model, tok, prompt, GREEDY)
        draft = smollm2.drafts(model, plain.prompt_ids)[kind]
        for k in range(9):
            run = speculative_generate(model, draft, tok, prompt, GREEDY, k=k)
            assert (run.ids, run.text, run.finish_reason) == (plain.ids, plain.text, plain.finish_reason), (name, k)
            assert run.logprobs == plain.logprobs, (name, k)
            runs.append(run)
    drafted = [done for run in runs for done in run.rounds if done.draft]
    assert any(done.kind == "correction" for done in drafted)
    assert any(done.accepted == len(done.draft) > 1 for done in drafted)
