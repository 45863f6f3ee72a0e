"""Planted deviations: a package with one rule broken must fail, and the message must name that rule.

Each edit is made to the package's source, which is then run in this process without compiling, and asked the cases in
the order of `ol conform` up to the first difference.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import tinyllm.num.compiled
from ol.conform import Difference, Judge, Section, read

# What the answers are computed with, each after what it imports.
MODULES = (
    "tinyllm.num.rng",
    "tinyllm.num.exact",
    "tinyllm.info.entropy",
    "tinyllm.prob.sampling",
    "tinyllm.prob.rejection",
    "tinyllm.infer.sample",
    "tinyllm.infer.kvcache",
    "tinyllm.infer.generate",
    "tinyllm.infer.spec",
    "tinyllm.infer.vectors",
)

STEP = "token, kept = speculative_step(target, q, x, rng.uniform(), rng.uniform())"
DEVIATIONS: dict[str, tuple[str, str, str, str, str]] = {
    # what is wrong: (module, the source as it is, the source as it is wrong, rule, key)
    "the second uniform is drawn on a rejection only": (
        "tinyllm.infer.spec",
        STEP,
        "u = rng.uniform()\n            v = 0.0 if u < target[x] / q[x] else rng.uniform()\n"
        "            token, kept = speculative_step(target, q, x, u, v)",
        "two-draws",
        "next_u32",
    ),
    "the two uniforms are drawn in the other order": (
        "tinyllm.infer.spec",
        STEP,
        "v, u = rng.uniform(), rng.uniform()\n            token, kept = speculative_step(target, q, x, u, v)",
        "two-draws",
        "emitted",
    ),
    "draft_probs are ignored": (
        "tinyllm.infer.spec",
        "q = _one_hot(x, vocab_size) if draft_probs is None else draft_probs[i]",
        "q = _one_hot(x, vocab_size)",
        "given-q",
        "emitted",
    ),
    "a draft counts as drawn from the target": (
        "tinyllm.infer.spec",
        STEP,
        "token, kept = speculative_step(target, target if draft_probs is not None else q, x, "
        "rng.uniform(), rng.uniform())",
        "given-q",
        "emitted",
    ),
    "a request draws from the seed's main stream": (
        "tinyllm.infer.sample",
        'return PCG32(seed).substream("sample")',
        "return PCG32(seed)",
        "one-uniform",
        "ids",
    ),
    "the residual is not normalised": (
        "tinyllm.prob.rejection",
        "out[i] = out[i] / total if total > 0.0 else p[i]",
        "out[i] = out[i] if total > 0.0 else p[i]",
        "residual",
        "residual",
    ),
    "greedy verification draws all the same": (
        "tinyllm.infer.spec",
        "token = choose(target_logits[i], p, past, None, prompt)",
        "token = choose(target_logits[i], p, past, rng.uniform() and None, prompt)",
        "greedy-match",
        "next_u32",
    ),
    "a draft is kept when u equals the ratio": (
        "tinyllm.prob.rejection",
        "u < p_x / q_x)",
        "u <= p_x / q_x)",
        "accept",
        "token",
    ),
    "a draft is kept when u q < p": (
        "tinyllm.prob.rejection",
        "u < p_x / q_x)",
        "u * q_x < p_x)",
        "accept",
        "token",
    ),
    "a rejected draft is replaced from p": (
        "tinyllm.prob.rejection",
        "return first_above(_residual(p, q), u_resample), False",
        "return first_above(p, u_resample), False",
        "residual",
        "token",
    ),
    "the inverse CDF takes u <= c": (
        "tinyllm.prob.sampling",
        "if u < running:",
        "if u <= running:",
        "inverse-cdf",
        "outcome",
    ),
    "below takes a draw mod n without redrawing": (
        "tinyllm.num.rng",
        "(draw := self.next_u32()) < threshold",
        "(draw := self.next_u32()) < 0",
        "below",
        "returns",
    ),
    "a substream depends on what was drawn": (
        "tinyllm.num.rng",
        "child_seed(self.seed, number)",
        "child_seed(self._state, number)",
        "substream",
        "returns",
    ),
    "a uniform takes its low bits first": (
        "tinyllm.num.rng",
        "high, low = self.next_u32() >> 5, self.next_u32() >> 6",
        "low, high = self.next_u32() >> 6, self.next_u32() >> 5",
        "uniform",
        "returns",
    ),
    "greedy ties go to the highest id": (
        "tinyllm.infer.sample",
        "return int(penalised.argmax())",
        "return int(penalised.size - 1 - penalised[::-1].argmax())",
        "greedy",
        "kept",
    ),
    "the repetition penalty divides negative logits too": (
        "tinyllm.infer.sample",
        "hit / p.repetition_penalty, hit * p.repetition_penalty",
        "hit / p.repetition_penalty, hit / p.repetition_penalty",
        "repetition",
        "probs",
    ),
    "frequency counts the prompt": (
        "tinyllm.infer.sample",
        "seen, counts = np.unique(generated, return_counts=True)",
        "seen, counts = np.unique(np.concatenate([before, generated]), return_counts=True)",
        "presence-frequency",
        "probs",
    ),
    "top-k breaks ties by the highest id": (
        "tinyllm.infer.sample",
        'return ids[np.argsort(-logits[ids], kind="stable")]',
        'return ids[::-1][np.argsort(-logits[ids[::-1]], kind="stable")]',
        "top-k",
        "kept",
    ),
    "top-p leaves out the id that reaches p": (
        "tinyllm.infer.sample",
        "order[: enough + 1]",
        "order[: max(enough, 1)]",
        "top-p",
        "kept",
    ),
    "min-p comes before top-p": (
        "tinyllm.infer.sample",
        "    if p.top_p < 1.0:\n        kept = _top_p(scaled, kept, p.top_p)\n    if p.min_p > 0.0:\n",
        "    if p.top_p < 1.0 and p.min_p == 0.0:\n        kept = _top_p(scaled, kept, p.top_p)\n"
        "    if p.min_p > 0.0 and p.top_p < 1.0:\n"
        "        return _top_p(scaled, _kept_ids(scaled, SamplingParams(top_k=p.top_k, min_p=p.min_p)), p.top_p)\n"
        "    if p.min_p > 0.0:\n",
        "filter-order",
        "kept",
    ),
    "logprobs are reported after the temperature": (
        "tinyllm.infer.sample",
        "    token = _choose(penalised, p, rng)\n",
        "    token = _choose(penalised, p, rng)\n    penalised = penalised / (p.temperature or 1.0)\n",
        "logprobs",
        "logprobs",
    ),
    "a softmax is normalised by a pairwise sum": (
        "tinyllm.num.exact",
        "    for i in range(x.size):\n        out[i] /= total\n",
        "    total = math.fsum(out)\n    for i in range(x.size):\n        out[i] /= total\n",
        "rounding",
        "probs",
    ),
    "the frequency penalty and its product are fused": (
        "tinyllm.infer.sample",
        "out[seen] = out[seen] - p.frequency_penalty * counts - p.presence_penalty",
        "F = __import__('fractions').Fraction\n        out[seen] = [float(F(float(out[v])) - F(p.frequency_penalty) * "
        "int(c)) - p.presence_penalty if math.isfinite(out[v]) else out[v] for v, c in zip(seen, counts)]",
        "rounding",
        "kept",
    ),
    "the frequency penalty is taken off once an occurrence": (
        "tinyllm.infer.sample",
        "out[seen] = out[seen] - p.frequency_penalty * counts - p.presence_penalty",
        "for v in generated:\n            out[v] -= p.frequency_penalty\n        out[seen] -= p.presence_penalty",
        "rounding",
        "kept",
    ),
    "a context n-gram may not overlap the suffix": (
        "tinyllm.infer.spec",
        "counts = self._followers.get(tuple(self._ids[-m:]))",
        "counts = self._followers.get(tuple(self._ids[-m:])) if m == 1 or len(set(self._ids[-m:])) > 1 else None",
        "longest-suffix",
        "draft",
    ),
    "the residual is taken from the target before its filters": (
        "tinyllm.infer.spec",
        STEP,
        "bare = sampling_distribution(target_logits[i], SamplingParams(temperature=p.temperature), past, prompt)\n"
        "            u, v = rng.uniform(), rng.uniform()\n"
        "            token, kept = speculative_step(target, q, x, u, v)\n"
        "            token = token if kept else speculative_step(bare, q, x, 1 - 2**-53, v)[0]",
        "residual",
        "emitted",
    ),
    "lookup copies the oldest occurrence": (
        "tinyllm.infer.spec",
        "self._latest[before[-n:]] = start",
        "self._latest.setdefault(before[-n:], start)",
        "most-recent",
        "draft",
    ),
    "lookup tries the shortest n-gram first": (
        "tinyllm.infer.spec",
        "range(len(last), self.min_ngram - 1, -1)",
        "range(self.min_ngram, len(last) + 1)",
        "longest-first",
        "draft",
    ),
    "the context n-gram draft breaks ties by the highest id": (
        "tinyllm.infer.spec",
        "key=lambda token: (-counts[token], token)",
        "key=lambda token: (-counts[token], -token)",
        "most-frequent",
        "draft",
    ),
    "a deterministic draft counts as drawn uniformly": (
        "tinyllm.infer.spec",
        "_one_hot(x, vocab_size) if draft_probs is None",
        "np.full(vocab_size, 1 / vocab_size) if draft_probs is None",
        "one-hot",
        "emitted",
    ),
    "penalties do not see the drafts just kept": (
        "tinyllm.infer.spec",
        "past = np.append(history, emitted).astype(np.int64)",
        "past = history",
        "row-history",
        "emitted",
    ),
    "the cache keeps the rejected drafts": (
        "tinyllm.infer.spec",
        "cache.truncate(committed + len(pending) + n)",
        "cache.truncate(committed + len(pending) + len(draft_ids))",
        "rollback",
        "",
    ),
    "a round drafts as many as there is room for": (
        "tinyllm.infer.spec",
        "m = min(k, out.room() - 1)",
        "m = min(k, out.room())",
        "budget",
        "rounds",
    ),
}


@cache
def sections() -> list[Section]:
    return read()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Modules imported from here on are new ones, run as plain Python; afterwards everything is as it was."""
    for name in MODULES:
        importlib.import_module(name)
    monkeypatch.setattr(tinyllm.num.compiled, "compiled", lambda function: function)
    for name in MODULES:
        package, _, child = name.rpartition(".")
        monkeypatch.setattr(sys.modules[package], child, sys.modules[name])  # put back afterwards
        monkeypatch.delitem(sys.modules, name)
    yield monkeypatch


def import_edited(monkeypatch: pytest.MonkeyPatch, edited: str, old: str, new: str) -> ModuleType:
    """Import the modules anew, `edited` with its one `old` replaced by `new`; the one that answers."""
    for name in MODULES:
        if name != edited:
            module = importlib.import_module(name)
        else:
            found = importlib.util.find_spec(name)
            assert found is not None and found.origin is not None
            source = Path(found.origin).read_text(encoding="utf-8")
            assert source.count(old) == 1, f"{name} has {source.count(old)} times: {old}"
            module = importlib.util.module_from_spec(found)
            sys.modules[name] = module
            package, _, child = name.rpartition(".")
            setattr(sys.modules[package], child, module)
            exec(compile(source.replace(old, new), found.origin, "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
    return module


def first_difference(vectors: ModuleType) -> Difference | None:
    judge = Judge(sections())
    for at, section in enumerate(judge.sections):
        for number, case in enumerate(section.cases):
            try:
                answered = vectors.answer(section.name, section.asked(case))
            except Exception as fault:
                answered = {"error": repr(fault)}
            judge.take(at, number, answered)
            if judge.report.first is not None:
                return judge.report.first
    return None


@pytest.mark.parametrize("wrong", DEVIATIONS)
def test_a_planted_deviation_fails_and_its_rule_is_named(wrong: str, fresh: pytest.MonkeyPatch) -> None:
    """A port's author reads one message; it must lead to the line that is wrong.

    KIND: differential.
    """
    module, old, new, rule, key = DEVIATIONS[wrong]
    found = first_difference(import_edited(fresh, module, old, new))
    assert found is not None, "nothing differs"
    assert (found.rule, found.key) == (rule, key or found.key), found.text()
    assert f"The rule ({rule}): " in found.text()


def test_the_unedited_package_passes_the_same_way(fresh: pytest.MonkeyPatch) -> None:
    """Else the deviations above would fail for another reason than their edit.

    KIND: differential.
    """
    line = "from __future__ import annotations\n"
    vectors = import_edited(fresh, "tinyllm.infer.spec", line, line + "\n")
    assert first_difference(vectors) is None


def test_no_deviation_stays_behind() -> None:
    """The modules of the other tests are those of the files.

    KIND: unit.
    """
    from tinyllm.infer import spec, vectors

    assert sys.modules["tinyllm.infer.spec"] is spec and vectors.verify_draft is spec.verify_draft
    assert len(DEVIATIONS) >= 10
