"""Shared vectors: cases with their answers, as JSON files that hold any other engine to this one.

The questions are those of `tinyllm.infer.vector_cases`; the answers come from the package itself. Writing the files is
deterministic: `python -m tinyllm.infer.vectors` writes the same bytes each time. `python -m tinyllm.infer.vectors
answer` is the package as one engine among others: cases in, one a line, answers out (`ol conform` drives it).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from tinyllm.infer.generate import Generation, generate
from tinyllm.infer.kvcache import KVCache
from tinyllm.infer.sample import SamplingParams, request_rng, sample, sampling_distribution
from tinyllm.infer.spec import (
    ContextNGramDraft,
    DraftModel,
    NGramDraft,
    PromptLookupDraft,
    speculative_generate,
    verify_draft,
)
from tinyllm.infer.vector_cases import CASES, RULES, Case
from tinyllm.num.rng import PCG32
from tinyllm.prob.rejection import acceptance_probability, residual_distribution, speculative_step
from tinyllm.prob.sampling import sample_categorical

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "vectors"
Answer = dict[str, Any]

# How an answer is compared. Floats that go through exp or log may differ where a platform's library does.
EXACT = "exact"  # the same value, a float to the bit
ULPS = "ulps"  # a float, its difference counted in units in the last place
LOGPROB = "logprob"  # the same, in units no finer than those of 1.0: it is the difference of two logarithms


@dataclass(frozen=True)
class Section:
    """One file: what it is about, how each key of an answer is compared and what it means, and who answers.

    A key may name a rule of its own: the one that is broken where this key is the first to differ.
    """

    about: str
    answers: dict[str, tuple[str, str] | tuple[str, str, str]]
    answer: Callable[[Case], Answer]


# The answers, one function a section.


def _exp_log(case: Case) -> Answer:
    return {"exp": [math.exp(x) for x in case["x"]], "log": [math.log(y) for y in case["y"]]}


def _generator(case: Case) -> Answer:
    rng = PCG32(int(case["seed"]), int(case["seq"]))
    for _ in range(case["drawn_before"]):
        rng.next_u32()
    if case["purpose"] is not None:
        rng = rng.substream(case["purpose"])
    returns = [_call(rng, *call) for call in case["calls"]]
    state, inc = rng.state()
    return {"returns": returns, "state": str(state), "inc": str(inc)}


def _call(rng: PCG32, name: str, n: int = 0) -> Any:
    if name == "below":
        return rng.below(n)
    if name == "shuffle":
        xs = list(range(n))
        rng.shuffle(xs)
        return xs
    return rng.uniform() if name == "uniform" else rng.next_u32()


def _categorical(case: Case) -> Answer:
    return {"outcome": sample_categorical(case["p"], case["u"])}


def _rejection(case: Case) -> Answer:
    p, q = case["p"], case["q"]
    token, accepted = speculative_step(p, q, case["x"], case["u_accept"], case["u_resample"])
    residual = residual_distribution(p, q)
    return {
        "overlap": acceptance_probability(p, q),
        "residual": residual,
        "token": token,
        "accepted": accepted,
    }


def _params(case: Case, max_tokens: int = 1) -> SamplingParams:
    return SamplingParams(**case["params"], seed=int(case["seed"]), max_tokens=max_tokens)


def _sampler(case: Case) -> Answer:
    logits, p, history = np.array(case["logits"]), _params(case), list(case["history"])
    rng = request_rng(int(case["seed"]))
    q = sampling_distribution(logits, p, history, case["prompt"])
    kept = np.flatnonzero(q)
    ids: list[int] = []
    logprobs: list[float] = []
    for _ in range(case["draws"]):
        token, logprob = sample(logits, p, history + ids, rng, case["prompt"])
        ids.append(token)
        logprobs.append(logprob)
    return {"kept": kept, "probs": q[kept], "ids": ids, "logprobs": logprobs, "next_u32": rng.next_u32()}


def _lookup(case: Case) -> Answer:
    draft = PromptLookupDraft(case["max_ngram"], case["min_ngram"])
    return {"draft": draft.propose(case["ctx"], case["k"])[0]}


def _context_ngram(case: Case) -> Answer:
    return {"draft": ContextNGramDraft(case["max_ngram"]).propose(case["ctx"], case["k"])[0]}


class _Table:
    """A model of counts given as a table: `logprobs` after a context are the row of its last id."""

    def __init__(self, table: Sequence[Sequence[float]]) -> None:
        self.table = np.array(table, dtype=np.float64)  # [V, V]

    def logprobs(self, context: Sequence[int]) -> NDArray[np.float64]:
        row: NDArray[np.float64] = self.table[context[-1]]
        return row


def _table_draft(table: Sequence[Sequence[float]]) -> NGramDraft:
    lm: Any = _Table(table)  # has what NGramDraft asks an NGramLM for
    return NGramDraft(lm)


def _ngram_draft(case: Case) -> Answer:
    rng = None if case["seed"] is None else request_rng(int(case["seed"]))
    ids, probs = _table_draft(case["table"]).propose(case["ctx"], case["k"], rng)
    return {"draft": ids, "probs": probs, "next_u32": None if rng is None else rng.next_u32()}


def _verification(case: Case) -> Answer:
    rng = request_rng(int(case["seed"]))
    logits, probs, p = np.array(case["logits"]), case["draft_probs"], _params(case)
    draft_probs = None if probs is None else np.array(probs).reshape(len(probs), logits.shape[1])
    emitted, n = verify_draft(logits, case["draft"], draft_probs, p, case["output"], rng, case["prompt"])
    return {"emitted": emitted, "n_accepted": n, "next_u32": rng.next_u32()}


class _TableModel:
    """A target given as a table of rows; which one comes next follows from every id that the cache holds.

    The cache's keys are the ids themselves, so a stale entry changes what is read back, as in a Transformer.
    """

    n_layers = n_kv_heads = d_head = 1

    def __init__(self, rows: Sequence[Sequence[float]], max_len: int) -> None:
        self.rows = np.array(rows, dtype=np.float64)  # [R, V]
        self.max_len = max_len
        self.cache: KVCache | None = None
        self.lengths: list[int] = []  # of the cache, after each pass

    def forward(self, ids: NDArray[np.int64], positions: Any, cache: KVCache) -> NDArray[np.float64]:
        """Logits `[1, T, V]` of the positions fed."""
        keys = np.asarray(ids, dtype=np.float32).reshape(1, 1, -1, 1)
        held, _ = cache.update(0, keys, keys)
        self.cache = cache
        self.lengths.append(cache.seq_len())
        state, states = 0, []
        for token in held[0, 0, :, 0]:
            state = (3 * state + int(token) + 1) % len(self.rows)
            states.append(state)
        rows: NDArray[np.float64] = self.rows[states[-ids.shape[1] :]][None]  # [1, T, V]
        return rows

    def cached(self) -> int:
        """How many positions the cache holds now."""
        return self.cache.seq_len() if self.cache else 0


class _Ids:
    """A tokenizer for requests given as ids: its text is the ids with spaces between."""

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(f"{token} " for token in ids)


def _draft(described: dict[str, Any]) -> DraftModel:
    if described["kind"] == "lookup":
        return PromptLookupDraft(described["max_ngram"], described["min_ngram"])
    if described["kind"] == "context_ngram":
        return ContextNGramDraft(described["max_ngram"])
    return _table_draft(described["table"])


def _generation(case: Case) -> Answer:
    tok, model = _Ids(), _TableModel(case["rows"], case["max_len"])
    prompt, eos_ids = tok.decode(case["prompt"]), case["eos_ids"]
    p = _params(case, case["max_tokens"])
    lengths: list[int] = []  # of the cache, after each round
    if case["draft"] is None:
        done: Generation = generate(model, tok, prompt, p, eos_ids=eos_ids)
        lengths = model.lengths
    else:
        done = speculative_generate(
            model,
            _draft(case["draft"]),
            tok,
            prompt,
            p,
            case["k"],
            eos_ids=eos_ids,
            on_round=lambda _: lengths.append(model.cached()),
        )
    return {
        "ids": done.ids,
        "rounds": [[list(r.draft), r.accepted, r.token, r.kind] for r in done.rounds],
        "cache_lengths": lengths,
        "logprobs": done.logprobs,
        "finish": done.finish_reason,
    }


_NEXT_U32 = (EXACT, "the generator's next output afterwards, which shows how many draws were taken")

SECTIONS: dict[str, Section] = {
    "exp_log": Section(
        "exp of x and log of y: what the platform's library gives. Everything else is judged in its light.",
        {"exp": (ULPS, "exp of each x"), "log": (ULPS, "log of each y")},
        _exp_log,
    ),
    "generator": Section(
        "PCG32(seed, seq), after drawn_before outputs its substream for the purpose if there is one; then the calls.",
        {
            "returns": (EXACT, "what each call returned; a shuffle is of 0, 1, ... n - 1"),
            "state": (EXACT, "the 64-bit state after the calls"),
            "inc": (EXACT, "the 64-bit increment"),
        },
        _generator,
    ),
    "categorical": Section(
        "The outcome of the distribution p for the uniform u.",
        {"outcome": (EXACT, "the id that comes out")},
        _categorical,
    ),
    "rejection": Section(
        "One step for p, q, the draft x and two uniforms.",
        {
            "overlap": (EXACT, "the acceptance probability, the sum of min(p, q)", "overlap"),
            "residual": (EXACT, "max(0, p - q) / Z, or p where Z is 0, whether the draft is kept or not", "residual"),
            "token": (EXACT, "the token that comes out"),
            "accepted": (EXACT, "whether it is the draft, kept"),
        },
        _rejection,
    ),
    "sampler": Section(
        "Tokens drawn from the same logits one after another, each joining the history of the next.",
        {
            "kept": (EXACT, "the ids with a probability above 0 at the first draw, ascending"),
            "probs": (ULPS, "their probabilities"),
            "ids": (EXACT, "the tokens drawn"),
            "logprobs": (LOGPROB, "their reported log-probabilities", "logprobs"),
            "next_u32": _NEXT_U32,
        },
        _sampler,
    ),
    "lookup": Section(
        "Prompt lookup after the context.",
        {"draft": (EXACT, "the ids proposed")},
        _lookup,
    ),
    "context_ngram": Section(
        "The n-gram draft over the request's own ids.",
        {"draft": (EXACT, "the ids proposed")},
        _context_ngram,
    ),
    "ngram_draft": Section(
        "A draft from a model of counts, given as a table: the row after an id. Without a seed it drafts greedily.",
        {
            "draft": (EXACT, "the ids proposed"),
            "probs": (ULPS, "the distribution each was drawn from, or null when none was drawn"),
            "next_u32": (EXACT, "the generator's next output afterwards, or null without one"),
        },
        _ngram_draft,
    ),
    "verification": Section(
        "verify_draft: m + 1 rows of target logits, m draft ids, what they were drawn from or null, the ids before.",
        {
            "emitted": (EXACT, "the kept drafts and one token more"),
            "n_accepted": (EXACT, "how many drafts were kept"),
            "next_u32": _NEXT_U32,
        },
        _verification,
    ),
    "generation": Section(
        "Whole requests. The logits after a context are rows[s]: s begins as 0, and each id of the context makes it "
        "(3 s + id + 1) mod the number of rows. draft null is plain decoding.",
        {
            "ids": (EXACT, "the ids written, without an EOS id"),
            "rounds": (EXACT, "of each pass: the draft, how many were kept, the target's own token, its kind"),
            "cache_lengths": (EXACT, "how many positions the cache holds after each round", "rollback"),
            "logprobs": (LOGPROB, "the ids' log-probabilities under the target", "logprobs"),
            "finish": (EXACT, "why it ended"),
        },
        _generation,
    ),
}


# JSON.


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: arrays become lists, and floats that are not finite become strings."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def revived(value: Any) -> Any:
    """What `plain` wrote, with the floats that are not finite as floats again."""
    if isinstance(value, dict):
        return {key: revived(item) for key, item in value.items()}
    if isinstance(value, list):
        return [revived(item) for item in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def answer(section: str, case: Case) -> Answer:
    """What the package answers to a case, as JSON can hold it. KeyError for a section that does not exist."""
    return dict(plain(SECTIONS[section].answer(revived(case))))


def document(section: str) -> str:
    """The file of a section: a head that explains it, then one case with its answers a line."""
    cases = [plain(case) for case in CASES[section]()]
    what = SECTIONS[section]
    named = {case["rule"] for case in cases} | {key[2] for key in what.answers.values() if len(key) > 2}
    if any(how != EXACT for how, *_ in what.answers.values()):
        named.add("rounding")  # what is broken where a float is a few units in the last place off
    rules = {rule: text for rule, text in RULES.items() if rule in named}
    head = {"section": section, "about": what.about, "answers": what.answers, "rules": rules}
    lines = [_line({**case, **answer(section, case)}) for case in cases]
    opening = json.dumps(head, indent=1, allow_nan=False).removesuffix("\n}")
    return opening + ',\n "cases": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def write(folder: Path = FOLDER) -> list[Path]:
    """Write one file a section into `folder` and return their paths, in the order in which to read them."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{section}.json" for section in SECTIONS]
    for path in paths:
        path.write_text(document(path.stem), encoding="utf-8", newline="\n")
    return paths


def answer_lines(asked: Iterable[str], out: TextIO) -> None:
    """Answer each case of `asked`, one JSON object a line, with a line on `out` that carries the same id."""
    for line in asked:
        case = json.loads(line)
        print(_line({"id": case["id"], **answer(case["section"], case)}), file=out, flush=True)


def main(words: Sequence[str]) -> int:
    """`answer` answers cases from standard input; otherwise the files are written. Returns the exit code."""
    if list(words) == ["answer"]:
        answer_lines(sys.stdin, sys.stdout)
        return 0
    if words:
        print(f"{' '.join(words)!r} is neither nothing, which writes the files, nor `answer`.", file=sys.stderr)
        return 2
    for path in write():
        print(f"wrote {path.name}, {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
