"""Where a learner is: the state of each module, and the one step that comes next."""

from __future__ import annotations

from typing import NamedTuple

from ol.commands import command, lacking
from ol.course import MODULES, Module
from ol.milestone import MILESTONES
from ol.workspace import Workspace

PASS_MARK = 0.8  # the share of planted bugs that a learner's tests must catch


class Standing(NamedTuple):
    """A module and how far it is: "passed", "changed", "started", "not started", "blocked" or "open"."""

    module: Module
    state: str
    note: str


class Step(NamedTuple):
    """A command to type, and what it is for."""

    command: str
    why: str


def standing(module: Module, workspace: Workspace) -> Standing:
    """How far a module is."""
    if not module.files:
        missing = [need for need in module.needs if not workspace.passed(MODULES[need])]
        if missing:
            return Standing(module, "blocked", f"needs {', '.join(missing)}")
        return Standing(module, "open", "built in another language")
    if not workspace.started(module):
        return Standing(module, "not started", "")
    state = workspace.state
    if workspace.passed(module):
        share = state.grades.get(module.id)
        notes = ["with lent modules"] if module.id in state.lent else []
        notes += [] if share is None else [f"your tests catch {share:.0%}"]
        return Standing(module, "passed", ", ".join(notes))
    if module.id in state.passed:
        return Standing(module, "changed", "edited since it passed")
    return Standing(module, "started", "solution was shown" if module.id in state.spoiled else "")


def standings(workspace: Workspace) -> list[Standing]:
    """How far each module is, in the order in which one builds them."""
    return [standing(module, workspace) for module in MODULES.values()]


def next_step(workspace: Workspace) -> Step:
    """The one thing to do next: finish what was begun, then test it, then begin what the book is about."""
    now = standings(workspace)
    state = workspace.state
    goals = {module_id for module_id, _ in MILESTONES.values()}
    for module, how, _ in now:
        if how in ("started", "changed"):
            missing = [need.id for need in lacking(module, workspace)]
            why = f"run the tests on your {module.files[-1]}"
            if missing:
                why += f"; the course lends {', '.join(missing)}"
            return Step(command("check", module, workspace), why)
    for module, how, _ in now:
        if how == "passed" and module.id in goals and state.grades.get(module.id, 0.0) < PASS_MARK:
            tests = workspace.own_tests(module)
            return Step(f"ol grade {module.id}", f"after writing tests of your own in {tests}")
    for milestone, (module_id, _) in MILESTONES.items():
        if milestone not in state.milestones and workspace.passed(MODULES[module_id]):
            goal = MODULES[module_id]
            return Step(command("milestone", goal, workspace, milestone), "the real model with your code")
    waiting = [module for module, how, _ in now if how == "not started"]
    # The module of a milestone comes first: the others can be lent.
    if chosen := next((m for m in waiting if m.id in goals), next(iter(waiting), None)):
        why = f"{chosen.title}: writes what you start from"
        if missing := [need.id for need in lacking(chosen, workspace)]:
            why += f"; the course can lend what it needs ({', '.join(missing)}), or build these first"
        return Step(f"ol start {chosen.id}", why)
    return Step("ol doctor", "everything is built; see that it stays well")
