"""What every test shares: the toy models' folder on the import path, and one Hypothesis profile.

Course tests say `from _toy import BagLM`; the toys live beside the tests of L8.6, which use them most.
"""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "L8.6"))

# The first call of a compiled function takes a second, so no example has a deadline; a failure must come back
# tomorrow, so examples follow from the test's own text and no database is kept.
settings.register_profile("course", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("course")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The real model's tests come first: they are the longest, and at the end one worker would wait for another's."""
    items.sort(key=lambda item: item.get_closest_marker("model") is None)
