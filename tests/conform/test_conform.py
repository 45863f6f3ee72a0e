"""`ol conform`: the comparison, what is said about a difference, and programs that do not answer as agreed."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ol import cli
from ol.check import check
from ol.conform import MAX_ULPS, VECTORS, Judge, Report, Section, hold, read, ulps_apart
from ol.course import ROOT
from ol.workspace import Workspace


@cache
def sections(*only: str) -> list[Section]:
    return read(only=only)


# A program that knows the answers by heart. `speak` is given the answers in order; what it does with them varies.
PARROT = (
    f"VECTORS = {str(VECTORS)!r}"
    + """
import json, sys, os, time
known = {}
for name in ("exp_log", "lookup"):
    data = json.load(open(os.path.join(VECTORS, name + ".json"), encoding="utf-8"))
    for case in data["cases"]:
        known[name, case["name"]] = {key: case[key] for key in data["answers"]}
def say(text, end="\\n"):
    print(text, end=end, flush=True)
def right(line):
    case = json.loads(line)
    return {"id": case["id"], **known[case["section"], case["name"]]}
"""
)
SPEAK = "for line in sys.stdin:\n    say(json.dumps(right(line)))\n"


def parrot(body: str, patience: float = 10.0) -> Report:
    program = PARROT + textwrap.dedent(body)
    return hold([sys.executable, "-I", "-S", "-c", program], sections("lookup"), patience)


# Programs that answer as agreed.


def test_the_package_itself_agrees_to_the_bit_or_says_how_far_its_platform_is_off() -> None:
    """The reference is one engine among others, held by the same means; this is the whole road, in another process.

    KIND: differential, smoke.
    """
    report = hold([sys.executable, "-m", "tinyllm.infer.vectors", "answer"], sections())
    assert report.passed and report.exit_code == 0, report.text()
    assert all(tally.answered == tally.cases for tally in report.tallies)
    if report.same_library:
        assert report.text().endswith("cases agree, to the bit.")


@pytest.mark.parametrize(
    "body",
    [
        SPEAK,
        "for answer in [right(line) for line in sys.stdin]:\n    print(json.dumps(answer))\n",  # reads all, then speaks
        "for line in sys.stdin:\n    say(json.dumps({**right(line), 'took': 3}), end=' \\r\\n')\n",  # says more
        "sys.stderr.write('loading\\n' * 100000)\n" + SPEAK,  # much on standard error, which is its own business
        "for line in sys.stdin:\n    t = json.dumps(right(line))\n    say(t[:9], ''); say(t[9:])\n",  # in pieces
    ],
)
def test_how_a_program_reads_and_writes_is_its_own_business(body: str) -> None:
    """One engine answers at once, another reads everything first; some buffer, some are chatty on standard error.

    KIND: boundary.
    """
    report = parrot(body)
    assert report.passed, report.text()


# Programs that do not.

HANGS, DIES, ORDER, NOISE = "hangs", "ended", "answers come in the order", "anything else it has to say"
FAULTS: dict[str, tuple[str, str]] = {
    "hangs at once": ("time.sleep(60)", HANGS),
    "hangs in the middle": (
        "for i, line in enumerate(sys.stdin):\n    say(json.dumps(right(line)))\n    if i == 40: time.sleep(60)",
        'hangs: no answer for 0.7 seconds after 41 of 115 answers; the case was "at least 3" of lookup',
    ),
    "hangs in the middle of a line": ("say(json.dumps(right(sys.stdin.readline()))[:20], ''); time.sleep(60)", HANGS),
    "hangs with its output closed": ("os.close(1); time.sleep(60)", "closed its output after 0 of 115"),
    "hangs at the end": (SPEAK + "time.sleep(60)", "answered everything, but did not end"),
    "hangs at the end, output closed": (SPEAK + "os.close(1); time.sleep(60)", "closed its output, but does not end"),
    "ends at once": ("", "ended with exit code 0 after 0 of 115 answers"),
    "dies in the middle": (
        "for i in range(3): say(json.dumps(right(sys.stdin.readline())))\nsys.exit('out of memory')",
        "ended with exit code 1 after 3 of 115",
    ),
    "raises": ("raise RuntimeError('no such model')", "ended with exit code 1 after 0 of 115"),
    "ends badly after everything": (SPEAK + "sys.exit(7)", "then ended with exit code 7"),
    "answers out of order": (
        "a, b = [right(sys.stdin.readline()) for _ in 'ab']\nsay(json.dumps(b)); say(json.dumps(a))",
        f'answered id 1 where the answer to id 0, "exp and log, part 1 of 30", belongs: {ORDER}',
    ),
    "answers one twice": ("a = json.dumps(right(sys.stdin.readline()))\nsay(a); say(a)", "answered id 0 where the"),
    "leaves the id out": ("a = right(sys.stdin.readline()); del a['id']; say(json.dumps(a))", "gave no id where"),
    "prints noise before": ("say('loading the model...')", "'loading the model...' where the answer to id 0"),
    "prints noise between": (
        "for line in sys.stdin:\n    say(json.dumps(right(line))); say('done')",
        "'done' where the answer to id 1",
    ),
    "prints noise after": (SPEAK + "say('bye')", "answered everything and then printed 'bye'"),
    "prints an empty line": ("say('')", "an empty line"),
    "prints a list": ("say('[1, 2]')", NOISE),
    "prints half an answer": ("say('{\"id\": 0, '); time.sleep(60)", "it is cut short"),
    "prints bytes that are no text": ("os.write(1, b'\\xff\\xfe\\n')", NOISE),
    "prints brackets without end": ("say('[' * 90000)", NOISE),
    "prints a bare NaN": ("say('{\"id\": 0, \"exp\": [NaN]}')", 'JSON has none, write the string "nan"'),
    "prints a bare -Infinity": ("say('{\"id\": 0, \"exp\": [-Infinity]}')", 'write the string "-inf"'),
    "prints what C calls a nan": ("say('{\"id\": 0, \"exp\": [-nan]}')", "no JSON from column 19 on, '-nan]}'"),
    "prints without end": ("while True: os.write(1, b'x' * 65536)", "a line of over 1,000,000 bytes"),
    "prints lines without end": ("while True: say('x' * 1000)", "'xxxxxxxx"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_program_that_does_not_answer_as_agreed_gets_a_sentence(name: str) -> None:
    """Never a hang, never a pass, never a traceback of ours.

    KIND: boundary.
    """
    body, sentence = FAULTS[name]
    began = time.monotonic()
    report = parrot(body, patience=0.7 if name.startswith("hangs") else 10.0)
    assert time.monotonic() - began < 20
    assert not report.passed and report.exit_code == 1
    assert sentence in report.fault and report.fault.startswith("the program "), report.fault
    assert "\n\nFAIL: " in report.text()


@pytest.mark.skipif(os.name != "posix", reason="signals and process groups are POSIX's")
def test_a_program_that_is_killed_is_told_by_the_signal() -> None:
    """A crash in C code ends by a signal, and that is what its author wants to know.

    KIND: boundary.
    """
    report = parrot("os.kill(os.getpid(), 11)")
    assert "ended by the signal SIGSEGV after 0 of 115 answers" in report.fault


def test_the_end_of_standard_error_is_shown_where_something_went_wrong() -> None:
    """The reason is nearly always there.

    KIND: unit.
    """
    report = parrot("raise RuntimeError('no such model')")
    assert "The end of its standard error:" in report.text() and "RuntimeError: no such model" in report.text()


@pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX's")
def test_what_a_hanging_program_started_ends_with_it(tmp_path: Path) -> None:
    """A wrapper script that is killed must not leave the engine running.

    KIND: boundary.
    """
    note = tmp_path / "pid"
    report = hold(["sh", "-c", f"sleep 60 & echo $! > '{note}'; wait"], sections("lookup"), 0.2)
    assert HANGS in report.fault
    child = int(note.read_text(encoding="utf-8"))
    for _ in range(100):
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(child)], capture_output=True, text=True).stdout.strip()
        if not state or state.startswith("Z"):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {child} still runs: {state}")


# The comparison.

Change = Callable[[dict[str, Any]], object]


def judged(change: Change, *only: str) -> Report:
    """What comes of right answers to these sections when `change` is made to each."""
    judge = Judge(sections(*only))
    for at, part in enumerate(judge.sections):
        for number, case in enumerate(part.cases):
            answered = json.loads(json.dumps({key: case[key] for key in part.answers}))
            change(answered)
            judge.take(at, number, answered)
    return judge.report


def off(by: int) -> Callable[[float], float]:
    """The float `by` units in the last place from another."""

    def moved(x: Any) -> Any:
        for _ in range(by):
            x = math.nextafter(x, math.inf) if isinstance(x, float) else x
        return x

    return moved


def change_keys(by: int, *keys: str) -> Change:
    def change(answered: dict[str, Any]) -> None:
        for key in keys:
            if key in answered:
                answered[key] = [off(by)(x) for x in answered[key]]

    return change


def test_another_platforms_exp_and_log_pass_and_are_told_by_ulps() -> None:
    """A library that rounds otherwise is no fault of the port, and no secret either.

    KIND: unit.
    """
    report = judged(change_keys(2, "exp", "log", "probs", "logprobs"), "sampler")
    assert report.passed and not report.same_library
    told = " ".join(report.text().split())
    assert "PASS: all 180 cases agree, but not to the bit." in told
    assert told.endswith("here they differ by up to 2.") and "values up to 2 ulp off" in told


def test_where_exp_and_log_are_the_same_one_ulp_is_a_difference() -> None:
    """Then nothing but another order of additions, or one rounding more, can be the cause.

    KIND: boundary.
    """
    report = judged(change_keys(1, "probs"), "sampler")
    assert not report.passed and report.first is not None
    assert report.first.rule == "rounding" and report.first.key == "probs"
    assert "1 ulp apart. Its exp and log agree with the files to the bit" in report.first.where


def test_more_ulps_than_libraries_differ_by_are_a_difference() -> None:
    """A sum in float32 is not excused by the platform.

    KIND: boundary.
    """
    report = judged(change_keys(MAX_ULPS + 1, "exp", "log"), "lookup")
    assert not report.passed and report.first is not None and report.first.section == "exp_log"
    report = judged(lambda a: [change_keys(1, "exp")(a), change_keys(200, "probs")(a)], "sampler")
    assert report.first is not None and "200 ulp apart." in report.first.where


def test_floats_that_are_written_with_too_few_digits_are_told_so() -> None:
    """Not a library of its own: that would excuse every value that goes through exp.

    KIND: boundary.
    """
    for digits in (9, 15, 16):

        def write(answered: dict[str, Any], digits: int = digits) -> None:
            for key in answered.keys() & {"exp", "log", "probs", "logprobs"}:
                answered[key] = [float(f"{x:.{digits}g}") if isinstance(x, float) else x for x in answered[key]]

        report = judged(write, "sampler")
        assert not report.passed and report.same_library and report.first is not None
        assert f"written with {digits} digits" in report.first.where and "17" in report.first.where


def test_what_was_computed_in_float32_is_called_that() -> None:
    """The commonest cause by far, and no count of ulp says it.

    KIND: unit.
    """

    def narrow(answered: dict[str, Any]) -> None:
        if "probs" in answered:
            answered["probs"] = [float(np.float32(x)) for x in answered["probs"]]

    report = judged(narrow, "sampler")
    assert report.first is not None and report.first.where.endswith("computed in float32 is as far off.")
    assert "of its size" in report.first.where and "ulp" not in report.first.where


@pytest.mark.parametrize(
    ("value", "said"), [(10**400, "but is 1000"), (math.inf, "but is inf."), (-0.0, "must be 0.0, but is -0.0.")]
)
def test_numbers_at_the_ends_of_float64_are_differences(value: float, said: str) -> None:
    """1e400 and a 400-digit integer are JSON, and a zero has a sign.

    KIND: boundary.
    """

    def change(answered: dict[str, Any]) -> None:
        if "residual" in answered:
            answered["residual"] = [value if x == 0.0 else x for x in answered["residual"]]

    report = judged(change, "rejection")
    assert report.first is not None and said in report.first.where and len(report.first.where) < 400


def test_what_no_exp_goes_through_must_agree_to_the_bit() -> None:
    """Uniforms and residuals are plain arithmetic, the same on every platform.

    KIND: boundary.
    """
    report = judged(lambda a: [change_keys(1, "exp")(a), change_keys(1, "residual")(a)], "rejection")
    assert report.first is not None and report.first.key == "residual" and "1 ulp apart." in report.first.where


@pytest.mark.parametrize(
    ("got", "sentence"),
    [
        ([3, 9], "draft must have 3 items, but has 2."),
        ([3, 9, 1, 2], "draft must have 3 items, but has 4."),
        ([3, 8, 1], "draft[1] must be 9, but is 8."),
        ([3, 9, True], "draft[2] must be 1, but is true."),
        ([3, 9, 1.0], "draft[2] must be 1, but is 1.0."),
        ([3, 9, None], "draft[2] must be 1, but is null."),
        (None, "draft must be a list, but is null."),
        ("391", 'draft must be a list, but is "391".'),
    ],
)
def test_a_difference_is_told_at_its_place(got: Any, sentence: str) -> None:
    """The value, what it must be, and where in the answer.

    KIND: unit.
    """

    def change(answered: dict[str, Any]) -> None:
        if answered.get("draft") == [3, 9, 1]:
            answered["draft"] = got

    report = judged(change, "lookup")
    assert report.first is not None and report.first.where == sentence


def test_the_first_difference_is_shown_in_full() -> None:
    """Someone who ports must be able to work on it without opening a file.

    KIND: unit.
    """

    def change(answered: dict[str, Any]) -> None:
        if answered.get("draft") == [3, 9, 1]:
            answered["draft"] = [3, 9]

    text = judged(change, "lookup").text()
    assert 'First difference: lookup, case 4 of 85, "the example by hand"' in text and "The case is about" not in text
    assert "The rule (longest-first): Prompt lookup tries the longest n-gram first" in text
    assert 'asked     {"name":"the example by hand","ctx":[1,2,3,9,1,2],"k":3,"max_ngram":3,"min_ngram":1}' in text
    assert 'expected  {"draft":[3,9,1]}\nanswered  {"draft":[3,9]}' in text
    assert "lookup              85        85       2" in text and "by rule: longest-first 1, " in text


def test_an_answer_without_a_key_or_with_an_error_is_a_difference() -> None:
    """A port may say that it refuses a case; that is no answer.

    KIND: boundary.
    """
    report = judged(lambda answered: answered.pop("draft", None), "lookup")
    assert report.first is not None and report.first.where == "The answer lacks the key draft."
    report = judged(lambda answered: answered.update(error="not done yet"), "lookup")
    assert report.first is not None and report.first.where == "The program answered with an error: not done yet"
    assert judged(lambda answered: answered.update(error=None), "lookup").passed  # what a struct of Go or Rust writes
    report = judged(lambda answered: answered.update(error="\ud800 \x1b]0;" + 9000 * "x"), "lookup")
    assert report.first is not None and "\\ud800 \\x1b]0;xxx" in report.first.where
    assert len(report.text()) < 8000 and report.text().encode("utf-8")


def test_an_integer_may_stand_for_a_float_but_not_the_other_way_round() -> None:
    """JavaScript writes 1.0 as 1.

    KIND: boundary.
    """

    def integers(answered: dict[str, Any]) -> None:
        answered["residual"] = [int(x) if x == int(x) else x for x in answered.get("residual", [])]

    assert judged(integers, "rejection").passed


def test_ulps_are_counted_in_the_units_of_the_larger() -> None:
    """And for log-probabilities in units no finer than those of 1.

    KIND: unit.
    """
    assert ulps_apart(1.0, math.nextafter(1.0, 2.0)) == 1
    assert ulps_apart(-3.0, -3.0) == 0
    assert ulps_apart(2.0, 2.0 + 5 * math.ulp(2.0)) == 5
    assert ulps_apart(1e-9, math.nextafter(1e-9, 1.0), 1.0) == 1
    assert ulps_apart(1e-9, 1.001e-9) > 1000 > ulps_apart(1e-17, 2e-17, 1.0)


# The command.


@pytest.fixture
def ol(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ol", "conform", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_the_exit_code_is_the_verdict(ol: Callable[..., tuple[int, str, str]]) -> None:
    """Scripts and CI read it.

    KIND: unit, smoke.
    """
    python = [sys.executable, "-I", "-S", "-c"]
    code, out, _ = ol("--section", "lookup", "--", *python, PARROT + SPEAK)
    assert code == 0 and "PASS: all 115 cases agree, to the bit." in out
    code, out, _ = ol("--section", "lookup", "--json", "--", *python, PARROT + SPEAK.replace("right(line)", "{}"))
    told = json.loads(out)
    assert code == 1 and told["passed"] is False and "gave no id" in told["fault"]


def test_what_cannot_be_started_or_does_not_exist_is_a_usage_error(ol: Callable[..., tuple[int, str, str]]) -> None:
    """A typing mistake is no verdict about an engine.

    KIND: boundary.
    """
    code, out, err = ol("--", "no-such-engine")
    assert (code, out) == (2, "") and err.startswith("'no-such-engine' cannot be started: ")
    code, out, err = ol("--section", "lokup", "--", "true")
    assert (code, out) == (2, "") and err.startswith("There is no section 'lokup'; there are exp_log, generator")
    code, out, _ = ol()
    assert code == 2


@pytest.mark.skipif(os.name != "posix", reason="first lines that name a program are POSIX's")
def test_why_a_program_cannot_be_started_is_told(ol: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """The system's own word for a folder is "permission denied", and for a missing interpreter "no such file".

    KIND: boundary.
    """
    script = tmp_path / "engine"
    script.write_text("#!/no/such/python\n", encoding="utf-8")
    script.chmod(0o755)
    for word, said in (("", "its name is empty"), (str(tmp_path), "it is a folder"), (str(script), "is not there")):
        code, out, err = ol("--", word)
        assert (code, out) == (2, "") and said in err, err


def test_help_teaches_by_example(ol: Callable[..., tuple[int, str, str]]) -> None:
    """Someone who knows nothing must see what to type.

    KIND: unit.
    """
    code, out, _ = ol("--help")
    assert code == 0 and "ol conform -- python -m tinyllm.infer.vectors answer" in out


def test_checking_the_other_engine_leads_here_once_its_needs_have_passed(tmp_path: Path) -> None:
    """L10.8 is no file in the learner's folder, so `ol check` says what to type instead.

    KIND: unit.
    """
    workspace = Workspace(tmp_path)
    waiting = check("L10.8", workspace)
    assert waiting.status == "blocked" and "needs L8.6" in waiting.reason and "conform" not in waiting.next
    assert check("L10.8", workspace, ref_deps=True).next == "Next: ol conform -- YOUR_PROGRAM"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_a_full_disk_is_told_in_a_sentence() -> None:
    """Not as a fault of the course, with a traceback.

    KIND: boundary.
    """
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "ol", "tests", "M07.1"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2 and done.stderr.startswith("What there was to say could not be written: ")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_what_ends_ol_ends_the_engine_too(tmp_path: Path) -> None:
    """A hung engine would go on for ever where a script gives up on the command.

    KIND: boundary.
    """
    note = tmp_path / "pid"
    engine = f"import os, pathlib, time; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-m", "ol", "conform", "--", sys.executable, "-c", engine], cwd=ROOT) as ol:
        while not (note.exists() and note.read_text(encoding="utf-8")):
            time.sleep(0.05)
        ol.terminate()
        assert ol.wait(10) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text(encoding="utf-8")), 0)
