"""The learner's command: it hands out stubs, checks what you build, hints, compares and grades.

`ol` in a terminal is `ol.cli`; in a notebook cell `ol.check("L8.6", verify_draft=verify_draft)` asks about one
function. Importing this package imports nothing else, so that a run of learner code starts fast.
"""

import sys
from types import ModuleType
from typing import Any


def check(module_id: str, **handed_over: Any) -> Any:
    """Run the tests of a module that concern what was handed over, and show a small table: see `ol.notebook`."""
    from ol.notebook import check as check_in_notebook

    return check_in_notebook(module_id, **handed_over)


def use_mine() -> None:
    """In a notebook: from here on the learner's own files stand in for the reference: see `ol.practice`."""
    from ol.practice import use_mine as use_mine_in_notebook

    use_mine_in_notebook()


class _Package(ModuleType):
    """A package whose name `check` stays the function above, also after the file check.py was imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "check" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
