"""What `ol dev check` proves holds, and it sees each way in which it could stop holding."""

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ol import cli, dev
from ol.bugs import Bug, Edit, bugs_of, pitfalls_of, plant
from ol.catalogue import tests_of as course_tests
from ol.course import MODULES, module, reference
from ol.dev import Fault, Report, dev_check
from ol.side_by_side import Correct, correct_ones

FILE = "tinyllm/prob/sampling.py"
BUILT = [one.id for one in MODULES.values() if one.files]

# The table of pitfalls of L8.6 as the course describes it: number, the test that catches it, its planted bugs.
PITFALLS = {
    1: ("test_one_token_output_is_the_target_exactly", "s01 s07"),
    2: ("test_deterministic_draft_is_exact", "s02 s09"),
    3: ("test_one_token_output_is_the_target_exactly", "s03"),
    4: ("test_hand_example", "s04"),
    5: ("test_hand_example_greedy", "s05"),
    6: ("test_hand_example_greedy", "s06"),
    7: ("test_penalties_see_the_accepted_drafts", "s08"),
    8: ("test_prompt_lookup_hand_example", "s10 s11 s12"),
    9: ("test_model_draft_syncs_its_cache", "s15 s16"),
    10: ("test_rejected_drafts_are_rolled_back", "s17 s18 s19"),
    11: ("test_eos_stop_and_budget", "s22 s23"),
    12: ("test_eos_stop_and_budget", "s24"),
}
UNNUMBERED = "s13 s14 s20 s21 s25 m001 m002 m003"


def test_the_first_module_to_build_holds_together(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The command proves it by runs: stub, reference, alternative and each bug.

    KIND: unit, smoke.
    """
    monkeypatch.setattr(sys, "argv", ["ol", "dev", "check", "m07.1", "--workers", "2", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == told["exit_code"] == 0 and told["faults"] == []
    assert told["modules"] == ["M07.1"] and told["bugs"] == len(bugs_of("M07.1"))
    assert told["runs"] == told["bugs"] + 3


def bug(name: str, tests: tuple[str, ...], old: str, new: str) -> Bug:
    return Bug(name, "M07.1", None, "sample_categorical", "A misconception.", tests, (Edit(FILE, old, new),))


def test_each_way_to_break_the_course_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A check that cannot fail proves nothing: a stub that works, a wrong alternative, bugs that are none.

    KIND: boundary.
    """
    infos = course_tests(module("M07.1"))
    smoke = next(info.name for info in infos if "smoke" in info.kinds)
    line = "if u < running:"
    bad = (
        bug("harmless", (smoke,), line, "if running > u:"),
        bug("stale", (smoke,), "if u < a sum that was here once:", ""),
        bug("no Python", (smoke,), line, "if u < running"),
        bug("unloadable", (smoke,), "import numpy as np\n", "import numpy as np\nimport nothing_of_this_name\n"),
        bug("elsewhere", ("test_of_another_module",), line, "if u <= running:"),
        bug("twin", (smoke,), line, "if u > running:"),
        bug("twin", (smoke,), line, "if u > running:"),
    )
    wrong = tmp_path / "sampling.py"
    wrong.write_text(plant(bad[-1])[FILE], encoding="utf-8")
    monkeypatch.setattr(dev, "bugs_of", lambda module_id: bad)
    monkeypatch.setattr(dev, "alternatives_of", lambda module_id: ())
    monkeypatch.setattr(dev, "correct_ones", lambda one: [*correct_ones(one)[:1], Correct("odd", {FILE: wrong})])
    monkeypatch.setattr(dev, "make_stub", lambda source, module_id: source)
    report = dev_check(["M07.1"], workers=2)
    assert report.exit_code == 5

    def said(claim: str) -> list[str]:
        return [fault.said for fault in report.faults if fault.claim == claim]

    assert any("passes on a stub" in text and smoke in text for text in said("the stub fails"))
    assert any(text.startswith("odd fails ") for text in said("correct code passes"))
    assert not any(text.startswith("reference") for text in said("correct code passes"))
    fits = said("bugs fit their files")
    assert len(fits) == 2 and any("bug stale edits" in text for text in fits)
    assert any("With bug no Python it is no Python" in text for text in fits)
    caught = said("bugs are caught by the tests they name")
    assert f"harmless is not caught by {smoke}." in caught
    assert any(text.startswith("unloadable is no bug that runs") for text in caught)
    assert not any(text.startswith("twin") for text in caught)
    assert said("enough bugs and alternatives") == ["0 alternatives; there should be 1."]
    agree = said("pitfall tables agree")
    assert "Two bugs are called twin." in agree
    assert "Bug elsewhere names test_of_another_module, which is no test of the catalogue." in agree


@pytest.mark.parametrize("module_id", BUILT)
def test_tables_agree_and_every_edit_fits(module_id: str, tmp_path: Path) -> None:
    """What needs no run is checked here for every module, each time the tests run.

    KIND: property, smoke.
    """
    one = module(module_id)
    assert list(dev._tables(one, course_tests(one), bugs_of(module_id))) == []
    overlays, faults = dev._planted(one, bugs_of(module_id), tmp_path)
    assert faults == [] and len(overlays) == len(bugs_of(module_id)) >= 6


def test_the_worked_modules_pitfalls_are_those_of_the_course() -> None:
    """Number, test and bugs of each, and which bugs have no number.

    KIND: unit.
    """
    table = {row.number: (row.test, " ".join(row.bugs)) for row in pitfalls_of("L8.6")}
    assert table == PITFALLS
    by_number = {number: " ".join(b.id for b in bugs_of("L8.6") if b.pitfall == number) for number in PITFALLS}
    assert by_number == {number: names for number, (_, names) in PITFALLS.items()}
    assert " ".join(b.id for b in bugs_of("L8.6") if b.pitfall is None) == UNNUMBERED


def test_a_table_that_does_not_agree_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of the table, of the bugs and of the docstrings is held against the others.

    KIND: boundary.
    """
    one = module("L8.6")
    infos, bugs = course_tests(one), bugs_of("L8.6")

    def found(**changed: Any) -> str:
        return " ".join(
            fault.said for fault in dev._tables(one, changed.get("infos", infos), changed.get("bugs", bugs))
        )

    assert found() == ""
    other = [dataclasses.replace(b, pitfall=2) if b.id == "s01" else b for b in bugs]
    assert "Bug s01 has pitfall 2" in found(bugs=other) and "Pitfall 1 names the bug s01" in found(bugs=other)
    other = [dataclasses.replace(b, tests=("test_bad_arguments",)) if b.id == "s04" else b for b in bugs]
    assert "Pitfall 4 is caught by test_hand_example; its bug s04" in found(bugs=other)
    silent = [dataclasses.replace(i, pitfalls=()) if i.name == "test_hand_example" else i for i in infos]
    assert "The docstring of test_hand_example does not name pitfall 4" in found(infos=silent)
    extra = [dataclasses.replace(i, pitfalls=(13,)) if i.name == "test_bad_arguments" else i for i in infos]
    assert "test_bad_arguments guards pitfall 13" in found(infos=extra)
    gone = [i for i in infos if i.name != "test_hand_example"]
    assert "names test_hand_example, which is no test" in found(infos=gone)
    assert "there should be 6" in found(bugs=bugs[:3])
    monkeypatch.setattr(dev, "pitfalls_with_hints", lambda: set(range(1, 12)))
    assert "hints" in found()


def test_a_report_says_everything_in_eighty_columns() -> None:
    """Whether it holds, in the first word; each fault with its module and claim.

    KIND: unit.
    """
    good = Report(("M07.1", "L8.6"), 36, 80, (), 12.3)
    assert good.text().startswith("PASS: M07.1, L8.6: 36 bugs, 80 runs in 12 s.\n") and good.exit_code == 0
    fault = Fault("L8.6", "bugs are caught by the tests they name", "s01 is not caught by " + "test_" + "x" * 60 + ".")
    bad = Report(("L8.6",), 28, 40, (fault,), 3.0)
    assert bad.exit_code == 5 and bad.text().startswith("BROKEN: L8.6: 28 bugs, 40 runs in 3 s.\n")
    assert "L8.6, not so: bugs are caught by the tests they name\n    s01 is not caught by\n" in bad.text()
    assert all(len(line) <= 80 for line in bad.text().splitlines())


def test_a_planted_bug_never_carries_its_own_name() -> None:
    """A suite can read the file that it runs on: what is planted must look like the reference otherwise.

    KIND: property.
    """
    for module_id in BUILT:
        for one in bugs_of(module_id):
            for file, text in plant(one).items():
                before = reference(file).read_text(encoding="utf-8")
                for word in (rf"\b{one.id}\b", "mutant", "planted"):
                    assert len(re.findall(word, text)) == len(re.findall(word, before)), (one.id, word)
