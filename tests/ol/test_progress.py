"""Where a learner is, and that there is always one next step that makes sense."""

from pathlib import Path

import pytest

from ol.course import MODULES, module, needed
from ol.progress import next_step, standing
from ol.start import reset, start
from ol.workspace import Workspace

SPEC = module("L8.6")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


def test_the_road_from_an_empty_folder_to_the_end(workspace: Workspace) -> None:
    """Start, check, own tests, milestone, then the modules that were lent: each step follows from the one before.

    KIND: unit, smoke.
    """
    assert next_step(workspace).command == "ol start L8.6", "the module that the book is about"
    assert standing(SPEC, workspace).state == "not started"
    start(SPEC, workspace)
    assert standing(SPEC, workspace).state == "started"
    assert next_step(workspace).command == "ol check L8.6 --ref-deps"
    workspace.record_pass(SPEC)
    assert standing(SPEC, workspace).state == "passed"
    assert next_step(workspace).command == "ol grade L8.6"
    with workspace.remember() as state:
        state.grades["L8.6"] = 0.79
    assert next_step(workspace).command == "ol grade L8.6"
    with workspace.remember() as state:
        state.grades["L8.6"] = 0.8
    assert next_step(workspace).command == "ol milestone MS-L8 --ref-deps"
    with workspace.remember() as state:
        state.milestones["MS-L8"] = "today"
    assert next_step(workspace).command == "ol start M06.3"
    for one in needed(SPEC):
        start(one, workspace)
        assert next_step(workspace).command == f"ol check {one.id}"
        workspace.record_pass(one)
    assert next_step(workspace).command == "ol doctor"


def test_an_edit_after_passing_asks_for_another_check(workspace: Workspace) -> None:
    """With everything it needs started, nothing has to be lent.

    KIND: unit.
    """
    for one in [*needed(SPEC), SPEC]:
        start(one, workspace)
        workspace.record_pass(one)
    workspace.write(workspace.file(SPEC.files[0]), "edited = True\n")
    assert standing(SPEC, workspace).state == "changed"
    assert next_step(workspace).command == "ol check L8.6"


def test_a_module_of_another_engine_waits_for_the_one_it_is_held_to(workspace: Workspace) -> None:
    """L10.8 has no files here and is blocked until L8.6 passes.

    KIND: boundary.
    """
    other = MODULES["L10.8"]
    assert standing(other, workspace)[1:] == ("blocked", "needs L8.6")
    start(SPEC, workspace)
    workspace.record_pass(SPEC)
    assert standing(other, workspace).state == "open"


def test_a_pass_says_when_modules_were_lent_and_a_reset_begins_anew(workspace: Workspace) -> None:
    """Neither is an edit, and both are what a learner wants to see.

    KIND: unit.
    """
    start(SPEC, workspace)
    workspace.record_pass(SPEC, lent="M06.3, L8.1")
    assert standing(SPEC, workspace)[1:] == ("passed", "with lent modules")
    workspace.record_pass(SPEC)
    assert standing(SPEC, workspace)[1:] == ("passed", "")
    workspace.write(workspace.file(SPEC.files[0]), "edited = True\n")
    assert standing(SPEC, workspace).state == "changed"
    reset(SPEC, workspace)
    assert standing(SPEC, workspace)[1:] == ("started", "")


def test_a_solution_that_was_shown_is_shown_as_such(workspace: Workspace) -> None:
    """`ol diff --spoil` is recorded, and the record can be seen.

    KIND: unit.
    """
    start(SPEC, workspace)
    with workspace.remember() as state:
        state.spoiled["L8.6"] = "today"
    assert standing(SPEC, workspace).note == "solution was shown"
