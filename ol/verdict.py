"""What a check came to: a status with its exit code, the tests one by one, and the words for it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["pass", "fail", "blocked", "not started", "broken"]
EXIT_CODES: dict[Status, int] = {"pass": 0, "fail": 1, "blocked": 3, "not started": 4, "broken": 5}
WIDTH = 80


@dataclass(frozen=True)
class TestResult:
    """One test function: passed when every case of it did. `why`: of the first case that did not, see `ol.explain`."""

    __test__ = False

    name: str
    passed: bool
    outcome: str  # passed, failed, error, skipped (only for the lack of the real model), not run
    seconds: float
    case: str = ""  # the parameters of the first case that did not pass
    why: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()  # as the test itself says
    pitfalls: tuple[int, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What a check came to. `reason`: one sentence; `next`: what to do now; `lent`: modules of the reference used."""

    module: str
    status: Status
    reason: str
    tests: tuple[TestResult, ...] = ()
    seconds: float = 0.0
    next: str = ""
    lent: tuple[str, ...] = ()
    explanation: str = ""  # of the first failure, in lines of at most 80 columns
    notes: tuple[str, ...] = ()
    output: str = ""  # the end of what was printed, for a run that broke off

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 blocked, 4 not started, 5 the course is broken."""
        return EXIT_CODES[self.status]

    @property
    def first_failure(self) -> TestResult | None:
        """The test that the explanation is about: of those that failed the most basic, else one that did not run."""
        failed = most_basic(test for test in self.tests if test.outcome in ("failed", "error"))
        return next(iter(failed), None) or next((test for test in self.tests if test.outcome == "not run"), None)

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return {**asdict(self), "exit_code": self.exit_code}

    def text(self) -> str:
        """The verdict for a terminal: headline, explanation, next step; plain text of at most 80 columns."""
        parts = [wrapped(f"{self.module} {self.status.upper()}: {self.reason}"), self.explanation]
        parts += [wrapped(note) for note in self.notes]
        if self.next:
            parts.append(wrapped(self.next))
        return "\n\n".join(part for part in parts if part)


def most_basic(tests: Iterable[TestResult]) -> list[TestResult]:
    """Tests of KIND unit that guard a pitfall first: the easiest to read. Otherwise in the order given."""
    return sorted(tests, key=lambda test: "unit" not in test.kinds or not test.pitfalls)


def narrowest(tests: Iterable[TestResult]) -> list[TestResult]:
    """The tests that guard one pitfall first, for they say most about what is wrong; those that guard none last."""
    return sorted(tests, key=lambda test: len(test.pitfalls) or math.inf)


def wrapped(text: str, indent: str = "") -> str:
    """The text in lines of at most 80 columns."""
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
