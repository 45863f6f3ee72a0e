"""`ol conform`: another engine against the shared vectors, one JSON line a case and one JSON line an answer.

The program is any command, in any language. It gets every case of `tests/vectors/` on its standard input and answers
each on its standard output, in order; what it does on standard error is its own business. Whatever it does instead
(hang, die, print something else) becomes one sentence, and its process is ended.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import struct
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from ol.course import ROOT

VECTORS = ROOT / "tests" / "vectors"
FIRST = "exp_log"  # the section that says whether the program's exp and log are those of the files
ROUNDING = "rounding"  # the rule that is broken where a float is a few ulps off
MAX_ULPS = 8  # further apart than this no two libraries are
FEW = 10_000  # ulps; beyond, a share of the value says more
PATIENCE = 20.0  # seconds between two answers
LONGEST_LINE = 1_000_000
SHOWN = 2000  # characters of what a program printed
WIDTH = 80


@dataclass(frozen=True)
class Section:
    """One file of vectors: its cases, how each key of an answer is compared and what it means, and its rules."""

    name: str
    about: str
    answers: Mapping[str, Sequence[str]]  # key -> (how it is compared, what it means, and maybe a rule of its own)
    rules: Mapping[str, str]
    cases: Sequence[Mapping[str, Any]]

    def asked(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """What the program is told: the case without its rule and its answers."""
        return {key: value for key, value in case.items() if key != "rule" and key not in self.answers}


@dataclass(frozen=True)
class Difference:
    """One case that was answered otherwise, with everything needed to work on it."""

    section: str
    number: int  # of the case in its section, from 1
    of: int
    name: str
    rule: str
    rule_text: str
    about: str  # the case's own rule, where another one seems broken
    key: str
    means: str
    where: str  # inside the answer, such as "rounds[2][1]", and what is wrong there
    asked: Mapping[str, Any]
    expected: Mapping[str, Any]
    answered: Mapping[str, Any]

    def text(self) -> str:
        """The difference in full."""
        lines = [
            f'First difference: {self.section}, case {self.number} of {self.of}, "{self.name}"',
            _wrap(f"The rule ({self.rule}): {self.rule_text}"),
            *([_wrap(f"The case is about: {self.about}")] if self.about else []),
            _wrap(f"{self.key} is {self.means}." if self.means else ""),
            _wrap(self.where),
            "",
            f"asked     {_json(self.asked)}",
            f"expected  {_json(self.expected)}",
            f"answered  {_cut(_json(self.answered))}",
        ]
        return "\n".join(line for line in lines if line or line == "")


@dataclass
class Tally:
    """One section's count. `ulps`: the largest difference in a value through exp or log; `rounded`: how many differ."""

    section: str
    cases: int
    answered: int = 0
    wrong: int = 0
    rounded: int = 0
    ulps: int = 0


@dataclass
class Report:
    """What holding a program to the vectors came to."""

    tallies: list[Tally]
    first: Difference | None = None
    broken_rules: dict[str, int] = field(default_factory=dict)  # rule -> cases that differ
    fault: str = ""  # why the talk broke off, or what was wrong with how it ended
    errors: str = ""  # the end of what the program wrote on standard error, where there was a fault
    same_library: bool = True  # exp and log gave the files' values, to the bit

    @property
    def passed(self) -> bool:
        """Every case was answered, and as the files have it."""
        return not self.fault and self.first is None

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail."""
        return 0 if self.passed else 1

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {**asdict(self), "passed": self.passed, "exit_code": self.exit_code}

    def text(self) -> str:
        """The report for a terminal: the sections, the verdict, and the first difference in full."""
        rows = [f"{'section':16}{'cases':>6}{'answered':>10}{'differ':>8}"]
        for tally in self.tallies:
            row = f"{tally.section:16}{tally.cases:>6}{tally.answered:>10}{tally.wrong or '-':>8}"
            far = f"   {tally.rounded} values up to {tally.ulps} ulp off" if tally.rounded else ""
            rows.append(row + far)
        parts = ["\n".join(rows), _wrap(self._verdict())]
        if self.errors:
            parts.append("The end of its standard error:\n" + textwrap.indent(self.errors, "    "))
        if self.first is not None:
            parts.append(self.first.text())
            ranked = ", ".join(
                f"{rule} {n}" for rule, n in sorted(self.broken_rules.items(), key=lambda pair: -pair[1])
            )
            parts.append(_wrap(f"Cases that differ, by rule: {ranked}."))
        return "\n\n".join(parts)

    def _verdict(self) -> str:
        cases, wrong = sum(t.cases for t in self.tallies), sum(t.wrong for t in self.tallies)
        answered, rounded = sum(t.answered for t in self.tallies), sum(t.rounded for t in self.tallies)
        if self.fault:
            return f"FAIL: {self.fault}"
        if wrong:
            return f"FAIL: {wrong} of {cases} cases differ.{self._platform()}"
        if rounded:
            return f"PASS: all {cases} cases agree, but not to the bit.{self._platform()}"
        return f"PASS: all {answered} cases agree, to the bit."

    def _platform(self) -> str:
        if self.same_library:
            return ""
        most = max(tally.ulps for tally in self.tallies)
        return (
            f" This program's exp and log are not those of the machine that wrote the vectors, so values that go "
            f"through them may differ by up to {MAX_ULPS} ulp; here they differ by up to {most}."
        )


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _cut(text: str, most: int = SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def _printable(text: str) -> str:
    """Text of the program, safe for a terminal: what cannot be printed as it is, is written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# The files.


def read(folder: Path = VECTORS, only: Iterable[str] = ()) -> list[Section]:
    """The sections, in the order of the contract; `only` some of them (the first one is always there).

    ValueError for a section that does not exist.
    """
    found = {}
    for path in folder.glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        found[data["section"]] = Section(*(data[k] for k in ("section", "about", "answers", "rules", "cases")))
    order = [name for name in ORDER if name in found] + sorted(found.keys() - set(ORDER))
    if unknown := sorted(set(only) - found.keys()):
        raise ValueError(f"there is no section {unknown[0]!r}; there are {', '.join(order)}.")
    return [found[name] for name in order if not set(only) or name in {FIRST, *only}]


# What a later section needs comes before it, so the first difference is the nearest to its cause.
ORDER = (
    FIRST,
    "generator",
    "categorical",
    "rejection",
    "sampler",
    "lookup",
    "context_ngram",
    "ngram_draft",
    "verification",
    "generation",
)


# The comparison.


def ulps_apart(a: float, b: float, least: float = 0.0) -> int:
    """How many units in the last place lie between two finite floats, in units no finer than those of `least`."""
    return math.ceil(abs(a - b) / math.ulp(max(abs(a), abs(b), least)))


@dataclass
class _Comparison:
    """One value of an answer against what the files have."""

    how: str
    allowed: int  # ulps, where `how` is not "exact"
    rounded: int = 0
    ulps: int = 0
    near: bool = False  # wrong by a few ulps, where the platform is no excuse

    def difference(self, expected: Any, got: Any, where: str) -> str:
        """What is wrong, as a sentence that begins with the place; empty when nothing is."""
        if isinstance(expected, list):
            if not isinstance(got, list):
                return f"{where} must be a list, but is {_json(got)}."
            inside = (
                self.difference(e, g, f"{where}[{i}]") for i, (e, g) in enumerate(zip(expected, got, strict=False))
            )
            if wrong := next(filter(None, inside), ""):
                return wrong
            if len(expected) != len(got):
                return f"{where} must have {len(expected)} items, but has {len(got)}."
            return ""
        if isinstance(expected, float) and isinstance(got, int | float) and not isinstance(got, bool):
            try:
                return self._floats(expected, float(got), where)
            except OverflowError:
                pass  # an integer beyond every float: shown below
        if type(expected) is not type(got) or expected != got:
            return f"{where} must be {_json(expected)}, but is {_cut(_json(got), 200)}."
        return ""

    def _floats(self, expected: float, got: float, where: str) -> str:
        if expected == got and math.copysign(1.0, expected) == math.copysign(1.0, got):
            return ""
        sentence = f"{where} must be {expected!r}, but is {got!r}"
        if not math.isfinite(got) or expected == got:
            return f"{sentence}."
        apart = ulps_apart(expected, got, 1.0 if self.how == "logprob" else 0.0)
        if self.how != "exact":
            self.rounded, self.ulps = self.rounded + 1, max(self.ulps, apart)
            if apart <= self.allowed:
                return ""
        if apart > FEW:
            sentence += f": off by {abs(got - expected) / max(abs(got), abs(expected)):.1e} of its size."
            return sentence + (" What was computed in float32 is as far off." if _like_float32(expected, got) else "")
        sentence += f": {apart} ulp apart."
        if self.how != "exact" and self.allowed < apart <= MAX_ULPS:
            self.near = True
            sentence += " Its exp and log agree with the files to the bit, so this is a sum in another order"
            sentence += " or one rounding more or less."
        return sentence


def _like_float32(expected: float, got: float) -> bool:
    """Whether `got` is what float32 makes of `expected`: one of its numbers, or about as far off as its numbers lie."""
    far = abs(got - expected) / max(abs(got), abs(expected))
    return 2.0**-30 < far < 2.0**-18 or (far < 2.0**-18 and struct.unpack("f", struct.pack("f", got))[0] == got)


def _digits(expected: Sequence[float], got: Sequence[Any]) -> int | None:
    """With how many digits the program writes its floats, where that is too few to read them back: what it printed is
    then the very value of the files, rounded to so many digits, every time."""
    wanted = [value for value in expected if isinstance(value, float)]
    written = [value for value in got if isinstance(value, int | float)]
    if len(wanted) == len(written) and wanted != written:
        for digits in range(6, 17):
            if all(float(f"{value:.{digits}g}") == other for value, other in zip(wanted, written, strict=True)):
                return digits
    return None


class Judge:
    """Takes answers in order and keeps the report.

    Whether a value that goes through exp or log may differ is settled by the first section: not where the program's
    own exp and log give the files' values.
    """

    def __init__(self, sections: Sequence[Section]) -> None:
        self.sections = sections
        self.report = Report([Tally(section.name, len(section.cases)) for section in sections])

    def take(self, at: int, number: int, answered: Mapping[str, Any]) -> None:
        """Compare the answer to case `number` (from 0) of section `at`."""
        section, tally = self.sections[at], self.report.tallies[at]
        case = section.cases[number]
        tally.answered += 1
        allowed = MAX_ULPS if section.name == FIRST or not self.report.same_library else 0
        found: tuple[str, str] | None = None  # key, what is wrong
        if answered.get("error") is not None:
            said = _cut(_printable(str(answered["error"])))
            found = ("error", f"The program answered with an error: {said}")
        rule = case["rule"]
        for key, (how, _, *own) in section.answers.items():
            comparison = _Comparison(how, allowed)
            written = answered.get(key)
            if section.name == FIRST and isinstance(written, list) and (digits := _digits(case[key], written)):
                said = f"Every value is the right one, written with {digits} digits: float64 takes 17 (%.17g)."
                found = found or (key, said)
            if found is None and key not in answered:
                found = (key, f"The answer lacks the key {key}.")
            elif found is None and (wrong := comparison.difference(case[key], answered[key], key)):
                found = (key, wrong)
                rule = ROUNDING if comparison.near else next(iter(own), rule)
            tally.rounded += comparison.rounded
            tally.ulps = max(tally.ulps, comparison.ulps)
        if section.name == FIRST and tally.rounded and found is None:
            self.report.same_library = False
        if found is None:
            return
        tally.wrong += 1
        broken = self.report.broken_rules
        broken[rule] = broken.get(rule, 0) + 1
        if self.report.first is None:
            key, wrong = found
            self.report.first = Difference(
                section.name,
                number + 1,
                len(section.cases),
                case["name"],
                rule,
                section.rules[rule],
                section.rules[case["rule"]] if rule != case["rule"] else "",
                key,
                section.answers[key][1] if key in section.answers else "",
                wrong,
                section.asked(case),
                {k: case[k] for k in section.answers},
                answered,
            )


# The talk with the program.


class Fault(Exception):
    """The program did not answer as agreed; the message is a sentence about it."""


class _Program:
    """A running command: its input is fed by one thread, what it prints is collected by two others."""

    def __init__(self, command: Sequence[str], asked: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=os.name == "posix",  # so that whatever it starts can be ended with it
        )
        self._printed: queue.Queue[bytes] = queue.Queue(maxsize=64)
        self._ending = threading.Event()
        self._tail = b""
        process = self.process
        assert process.stdin and process.stdout and process.stderr
        for target, words in (
            (self._feed, (process.stdin, asked)),
            (self._listen, (process.stdout,)),
            (self._overhear, (process.stderr,)),
        ):
            threading.Thread(target=target, args=words, daemon=True).start()

    def _feed(self, pipe: IO[bytes], asked: Sequence[str]) -> None:
        with contextlib.suppress(OSError, ValueError):  # it may have died, or not want to read
            for line in asked:
                pipe.write(line.encode("utf-8") + b"\n")
            pipe.close()

    def _listen(self, pipe: IO[bytes]) -> None:
        more = True
        with contextlib.suppress(OSError, ValueError):
            while more and not self._ending.is_set():
                chunk = os.read(pipe.fileno(), 65536)
                more = chunk != b""
                self._put(chunk)
            return
        self._put(b"")

    def _put(self, chunk: bytes) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(queue.Full):
                self._printed.put(chunk, timeout=0.2)
                return

    def _overhear(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(pipe.fileno(), 65536):
                self._tail = (self._tail + chunk)[-4000:]

    def lines(self, patience: float) -> Iterator[bytes]:
        """Each line it prints, without its end; TimeoutError when nothing whole comes for `patience` seconds.

        The first line may take three times as long: the program has to start.
        """
        rest = b""
        deadline = time.monotonic() + 3 * patience
        while True:
            try:
                chunk = self._printed.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError from None
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line
                deadline = time.monotonic() + patience
            if len(rest) > LONGEST_LINE or (not chunk and rest):
                yield rest
                rest = b""
            if not chunk:
                return

    def ended(self, patience: float) -> int | None:
        """Its exit code once it has ended, or None when it has not within `patience` seconds."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """End it and whatever it started."""
        self._ending.set()
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def errors(self) -> str:
        """The last lines it wrote on standard error."""
        lines = self._tail.decode("utf-8", errors="replace").strip().splitlines()[-8:]
        return "\n".join(_printable(line[:200]) for line in lines)


def hold(command: Sequence[str], sections: Sequence[Section], patience: float = PATIENCE) -> Report:
    """Ask the program every case of `sections` and compare what it answers.

    `patience` is how many seconds may pass between two answers. OSError when the command cannot be started.
    """
    judge = Judge(sections)
    order = [(at, number) for at, section in enumerate(sections) for number in range(len(section.cases))]
    asked = []
    for i, (at, number) in enumerate(order):
        section = sections[at]
        asked.append(_json({"id": i, "section": section.name, **section.asked(section.cases[number])}))
    program = _Program(command, asked)
    try:
        _talk(program, judge, order, patience)
    except Fault as fault:
        judge.report.fault = str(fault)
        program.end()
        judge.report.errors = program.errors()
    finally:
        program.end()
    return judge.report


def _talk(program: _Program, judge: Judge, order: Sequence[tuple[int, int]], patience: float) -> None:
    lines = program.lines(patience)
    for i, (at, number) in enumerate(order):
        case = judge.sections[at].cases[number]
        so_far = f'{i} of {len(order)} answers; the case was "{case["name"]}" of {judge.sections[at].name}'
        try:
            line = next(lines, None)
        except TimeoutError:
            seconds = patience if i else 3 * patience
            unit = "second" if seconds == 1 else "seconds"
            raise Fault(f"the program hangs: no answer for {seconds:g} {unit} after {so_far}.") from None
        if line is None:
            raise Fault(_death(program.ended(min(patience, 5.0)), so_far))
        judge.take(at, number, _answer(line, i, case["name"]))
    try:
        extra = next(lines, None)
    except TimeoutError:
        raise Fault(f"the program answered everything, but did not end {patience:g} s after its input ended.") from None
    if extra is not None:
        raise Fault(f"the program answered everything and then printed {_shown(extra)}; only answers belong there.")
    code = program.ended(patience)
    if code is None:
        raise Fault("the program answered everything and closed its output, but does not end.")
    if code != 0:
        raise Fault(f"the program answered everything and then ended {_ending(code)}; it must end with exit code 0.")


def _answer(line: bytes, wanted: int, name: str) -> dict[str, Any]:
    """The answer in a line; Fault when it is no JSON object, or the answer to another case."""
    where = f'where the answer to id {wanted}, "{name}", belongs'
    if len(line) > LONGEST_LINE:
        raise Fault(f"the program printed a line of over {LONGEST_LINE:,} bytes {where}: {_shown(line)}.")
    why = "it is no object"
    try:
        answered = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except _BareConstant as constant:
        word = {"Infinity": "inf", "-Infinity": "-inf"}.get(str(constant), "nan")
        said = f'the program printed a bare {constant} {where}; JSON has none, write the string "{word}".'
        raise Fault(said) from None
    except UnicodeDecodeError as fault:
        answered, why = None, f"byte {fault.start + 1} is not UTF-8"
    except json.JSONDecodeError as fault:
        place = f" from column {fault.pos + 1} on, {_shown(line, fault.pos, 20)}" if fault.pos else ""
        cut_short = 0 < fault.pos >= len(fault.doc.rstrip())
        answered, why = None, "it is cut short" if cut_short else f"it is no JSON{place}"
    except (ValueError, RecursionError):
        answered, why = None, "it is too much for a JSON reader"
    if not isinstance(answered, dict):
        raise Fault(
            f"the program printed {_shown(line)} {where}: {why}. Each line of its standard output is one JSON object; "
            "anything else it has to say goes to standard error."
        )
    if "id" not in answered:
        raise Fault(f"the program gave no id {where}: each answer carries the id of its case.")
    given = answered.pop("id")
    if given != wanted or isinstance(given, bool):
        given = _cut(_json(given), 80)
        raise Fault(f"the program answered id {given} {where}: answers come in the order of the cases.")
    return answered


class _BareConstant(Exception):
    """NaN or Infinity outside a string."""


def _no_constant(name: str) -> None:
    raise _BareConstant(name)


def _shown(line: bytes, start: int = 0, most: int = 80) -> str:
    text = line.decode("utf-8", errors="replace")[start:]
    return "an empty line" if not text.strip() else repr(text[:most] + "..." if len(text) > most else text)


def _death(code: int | None, so_far: str) -> str:
    if code is None:
        return f"the program closed its output after {so_far}, but did not end."
    return f"the program ended {_ending(code)} after {so_far}."


def _ending(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"by the signal {signal.Signals(-code).name}"
    return f"by signal {-code}"
