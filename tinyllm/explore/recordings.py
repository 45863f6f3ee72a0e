"""Runs of SmolLM2 kept in the repository, so that explorables can replay them without the model.

`python -m tinyllm.explore.recordings` makes them anew: every request of `tinyllm.smollm2` with each of its drafts,
greedy. They do not depend on the machine, and a test holds them to the model. What was timed is kept apart.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tinyllm import smollm2
from tinyllm.infer.generate import Generation, Round
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import speculative_generate
from tinyllm.tok.bpe import BPETokenizer
from tinyllm.xfmr.llama import Llama
from tinyllm.zoo import smollm2 as load_smollm2

PATH = Path(__file__).with_name("recordings.json")
GREEDY = SamplingParams(temperature=0, max_tokens=48)
K = 4


def runs() -> dict[tuple[str, str], Generation]:
    """The recorded runs by kind of text and draft; their `logprobs` and `timings` were not kept."""
    found = {}
    for text, request in _read()["requests"].items():
        for draft, rounds in request["runs"].items():
            found[text, draft] = _generation(request, [Round(tuple(ids), *rest) for ids, *rest in rounds])
    return found


def pieces() -> dict[int, str]:
    """The text of every id in the recorded runs, drafted ones included."""
    return {int(token): text for token, text in _read()["pieces"].items()}


def record(model: Llama, tok: BPETokenizer) -> dict[str, Any]:
    """Make every run: what the file holds."""
    requests: dict[str, Any] = {}
    seen: set[int] = set()
    for text, prompt in tqdm(smollm2.requests(tok).items(), unit="text"):
        request: dict[str, Any] = {"runs": {}}
        for name, draft in smollm2.drafts(model, tok.encode(prompt)).items():
            made = speculative_generate(model, draft, tok, prompt, GREEDY, k=K)
            request |= {"prompt_ids": made.prompt_ids, "ids": made.ids, "text": made.text}
            request["runs"][name] = [[list(done.draft), *done[1:]] for done in made.rounds]
            seen |= {token for done in made.rounds for token in (*done.draft, done.token)}
        seen |= set(request["prompt_ids"])
        requests[text] = request
    return {"requests": requests, "pieces": {str(token): tok.decode([token]) for token in sorted(seen)}}


def _generation(request: dict[str, Any], rounds: list[Round]) -> Generation:
    drafted, accepted = sum(len(done.draft) for done in rounds), sum(done.accepted for done in rounds)
    stats = {
        "prompt_tokens": float(len(request["prompt_ids"])),
        "completion_tokens": float(len(request["ids"])),
        "drafted": float(drafted),
        "accepted": float(accepted),
        "acceptance_rate": accepted / drafted if drafted else 0.0,
        "target_calls": float(len(rounds)),
    }
    return Generation(request["text"], request["ids"], [], {}, stats, "length", request["prompt_ids"], rounds)


@cache
def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Record and write the file."""
    found = record(*load_smollm2())
    PATH.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
