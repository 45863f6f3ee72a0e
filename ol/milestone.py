"""MS-L8: the real model, decoded with the learner's own code, gives the same tokens in fewer passes.

Two steps, each over every request of `tinyllm.smollm2`: drafts from the n-gram model (spec-ngram-greedy) and from
prompt lookup (spec-lookup-greedy), at temperature 0, against plain decoding with the learner's `generate`. One more
request has a known continuation, so that two wrongs do not make a right.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from ol.check import before, gather
from ol.commands import command
from ol.course import module
from ol.overlay import Overlay
from ol.sandbox import Limits, Run, run
from ol.verdict import Status, Verdict
from ol.workspace import Workspace, WorkspaceError

MILESTONES = {"MS-L8": ("L8.6", ("spec-ngram-greedy", "spec-lookup-greedy"))}
DRAFT_OF = {"spec-ngram-greedy": "n-gram", "spec-lookup-greedy": "prompt lookup"}
TOKENS = 32
K = 4
KNOWN = ("The capital of France is", " Paris.\n\nThe answer is: 2018-01-22 ")
LIMITS = Limits(seconds=1800.0, quiet_seconds=300.0)


def milestone(
    milestone_id: str,
    workspace: Workspace,
    *,
    ref_deps: bool = False,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Verdict:
    """Run a milestone with the learner's code; reaching it is remembered. ValueError for an unknown milestone.

    The module must have passed first, and the real model must be here; otherwise the verdict is blocked. `on_event`
    sees one record a request: {"is": "request", "step", "request", "same", "acceptance_rate", "passes", "tokens"}.
    """
    from tinyllm.zoo import why_not

    found = {known.lower(): known for known in MILESTONES}.get(milestone_id.strip().lower())
    if found is None:
        raise ValueError(f"there is no milestone {milestone_id!r}; there is {' and '.join(MILESTONES)}.")
    module_id, steps = MILESTONES[found]
    chosen = module(module_id)
    verdict = before(chosen, workspace, ref_deps, "milestone", found)
    if verdict is not None:
        return _named(verdict, found)
    if not workspace.passed(chosen):
        how = f"{module_id} must pass first, as it is now"
        return Verdict(found, "blocked", f"{how}.", next=f"Next: {command('check', chosen, workspace)}")
    if reason := why_not():
        return Verdict(found, "blocked", reason, next="Next: ol doctor")
    with gather(chosen, workspace) as (files, _, lent):
        what = Run(Overlay(files), limits=LIMITS, model=True, call="ol.milestone:in_child", argument=list(steps))
        outcome = run(what, on_event)
    if not outcome.finished:
        status: Status = "broken" if outcome.ending == "broken" else "fail"
        output = str(outcome.detail.get("trace", outcome.output))
        return Verdict(found, status, outcome.reason, seconds=outcome.seconds, output=output, lent=tuple(lent))
    rows: list[dict[str, Any]] = outcome.result
    verdict = _judge(found, steps, rows, outcome.seconds, tuple(lent), command("check", chosen, workspace))
    if verdict.status == "pass":
        try:
            with workspace.remember() as state:
                state.milestones.setdefault(found, datetime.now().isoformat(timespec="seconds"))
        except WorkspaceError as fault:
            verdict = Verdict(**{**vars(verdict), "notes": (f"This was not remembered: {fault}",)})
    return verdict


def _judge(
    name: str, steps: tuple[str, ...], rows: list[dict[str, Any]], seconds: float, lent: tuple[str, ...], check: str
) -> Verdict:
    """What the rows amount to. check: what to type when one is wrong."""
    lines = []
    head = f"    {'request':20} {'tokens':>8} {'passes':>8} {'acceptance_rate':>16} {'seconds':>8}  identical"
    for step in steps:
        mine = [row for row in rows if row["step"] == step]
        drafted, accepted = sum(row["drafted"] for row in mine), sum(row["accepted"] for row in mine)
        rate = accepted / drafted if drafted else 0.0
        lines += [f"step {step}: acceptance_rate {rate:.3f}", "", head]
        for row in mine:
            lines.append(
                f"    {row['request']:20} {row['tokens']:8} {row['passes']:8} {row['acceptance_rate']:16.3f} "
                f"{row['seconds']:8.2f}  {'yes' if row['same'] else 'NO'}"
            )
        lines.append("")
    wrong = [row for row in rows if not row["same"]]
    common: dict[str, Any] = {"seconds": seconds, "lent": lent, "explanation": "\n".join(lines).rstrip()}
    if wrong:
        first = wrong[0]
        said = f"step {first['step']}, {first['request']}: {first['why']}."
        return Verdict(name, "fail", said, next=f"Next: {check}", **common)
    tokens, passes = sum(row["tokens"] for row in rows), sum(row["passes"] for row in rows)
    said = f"token-identical on every request, {tokens} tokens in {passes} passes of SmolLM2."
    return Verdict(name, "pass", said, **common)


def _named(verdict: Verdict, name: str) -> Verdict:
    return Verdict(**{**vars(verdict), "module": name})


def in_child(send: Callable[[dict[str, Any]], None], steps: list[str]) -> list[dict[str, Any]]:
    """Run the steps in the process that has the learner's code; one row a step and request."""
    from tinyllm import smollm2
    from tinyllm.infer.generate import generate
    from tinyllm.infer.sample import SamplingParams
    from tinyllm.infer.spec import speculative_generate
    from tinyllm.zoo import smollm2 as load

    model, tok = load()
    greedy = SamplingParams(temperature=0, max_tokens=TOKENS)
    requests = {**smollm2.requests(tok), "known continuation": KNOWN[0]}
    rows = []
    for request, prompt in requests.items():
        plain = generate(model, tok, prompt, greedy)
        drafts = smollm2.drafts(model, tok.encode(prompt))
        for step in steps:
            started = time.perf_counter()
            mine = speculative_generate(model, drafts[DRAFT_OF[step]], tok, prompt, greedy, k=K)
            why = _difference(list(plain.ids), list(mine.ids), plain.text, mine.text)
            if not why and request == "known continuation" and not mine.text.startswith(KNOWN[1]):
                why = f"the text is {mine.text[:40]!r} where the model says {KNOWN[1]!r}"
            row = {
                "is": "request",
                "step": step,
                "request": request,
                "same": not why,
                "why": why,
                "tokens": len(mine.ids),
                "passes": int(mine.stats["target_calls"]),
                "drafted": int(mine.stats["drafted"]),
                "accepted": int(mine.stats["accepted"]),
                "acceptance_rate": float(mine.stats["acceptance_rate"]),
                "seconds": time.perf_counter() - started,
            }
            send(row)
            rows.append(row)
    order = {step: i for i, step in enumerate(steps)}
    return sorted(rows, key=lambda row: order[str(row["step"])])


def _difference(plain: list[int], mine: list[int], plain_text: str, text: str) -> str:
    """In what two outputs differ, "" when in nothing."""
    for i, (a, b) in enumerate(zip(plain, mine, strict=False)):
        if a != b:
            return f"token {i} is {b} where plain decoding gives {a}"
    if len(plain) != len(mine):
        return f"{len(mine)} tokens where plain decoding gives {len(plain)}"
    return "" if plain_text == text else "the tokens are the same and the text is not"
