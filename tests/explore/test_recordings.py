"""The stored runs are those the model makes."""

import pytest

from tinyllm import smollm2
from tinyllm.explore import recordings
from tinyllm.infer.spec import PromptLookupDraft, speculative_generate
from tinyllm.zoo import smollm2 as load_smollm2


@pytest.mark.model
def test_the_recorded_runs_are_what_smollm2_writes_today() -> None:
    """A recording that has gone stale would show rounds that no reader can repeat. The quick draft on every request,
    the others on one.

    KIND: differential.
    """
    model, tok = load_smollm2()
    stored, pieces = recordings.runs(), recordings.pieces()
    requests = smollm2.requests(tok)
    names = list(smollm2.drafts(model, [0]))
    assert list(stored) == [(text, name) for text in requests for name in names]
    for (text, name), run in stored.items():
        assert run.prompt_ids == tok.encode(requests[text])
        if name != "prompt lookup" and text != "quoting":
            continue
        draft = PromptLookupDraft() if name == "prompt lookup" else smollm2.drafts(model, run.prompt_ids)[name]
        made = speculative_generate(model, draft, tok, requests[text], recordings.GREEDY, k=recordings.K)
        assert (made.ids, made.rounds, made.text, made.stats["accepted"]) == (
            run.ids, run.rounds, run.text, run.stats["accepted"],
        )  # fmt: skip
        assert all(pieces[x] == tok.decode([x]) for done in run.rounds for x in (*done.draft, done.token))
