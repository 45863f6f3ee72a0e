"""What every test shares: the toy models' folder on the import path, the markers, and one Hypothesis profile.

Course tests say `from _toy import BagLM`; the toys live beside the tests of L8.6, which use them most.
"""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "L8.6"))

# The first call of a compiled function takes a second, so no example has a deadline; a failure must come back
# tomorrow, so examples follow from the test's own text and no database is kept.
settings.register_profile("course", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("course")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "module(id): the course module that a test belongs to, such as L8.6")
    config.addinivalue_line(
        "markers",
        "model: needs the real model; skipped with the reason where it is absent, failed instead when CI is set",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of the real model where there is none; on CI fail, so that nothing passes by being skipped."""
    if item.get_closest_marker("model") is None:
        return
    from tinyllm.zoo import why_not  # only here: the other tests run without the loader

    reason = why_not()
    if reason is None:
        return
    if os.environ.get("CI"):
        pytest.fail(f"the real model is absent, and CI allows no skip: {reason}", pytrace=False)
    pytest.skip(reason)
