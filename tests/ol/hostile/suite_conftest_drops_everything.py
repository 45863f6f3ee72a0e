"""A conftest.py that lets no test be run."""


def pytest_collection_modifyitems(items):
    items.clear()
