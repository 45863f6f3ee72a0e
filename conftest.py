"""What tests and notebooks share: what happens to those that need the real model where it is absent.

They are skipped with the reason; where CI is set they fail with it, so that nothing passes there by being skipped.
"""

import json
import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the mark `model` to every cell of a notebook in which some cell is tagged `needs-model`."""
    needing = {}
    for item in items:
        if item.path.suffix == ".ipynb":
            if item.path not in needing:
                cells = json.loads(item.path.read_text(encoding="utf-8"))["cells"]
                needing[item.path] = any("needs-model" in cell["metadata"].get("tags", ()) for cell in cells)
            if needing[item.path]:
                item.add_marker(pytest.mark.model)


@pytest.hookimpl(tryfirst=True)  # before a notebook's kernel is started for nothing
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or on CI fail, what needs the real model where there is none."""
    if item.get_closest_marker("model") is None:
        return
    from tinyllm.zoo import why_not  # only here: the other tests run without the loader

    reason = why_not()
    if reason is None:
        if item.path.suffix == ".ipynb":
            from tinyllm.xfmr import kernels

            kernels.prepare()  # a chapter's kernel would say in a cell's output that it compiles
        return
    if os.environ.get("CI"):
        pytest.fail(f"the real model is absent, and CI allows no skip: {reason}", pytrace=False)
    pytest.skip(reason)
