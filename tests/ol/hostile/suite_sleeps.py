"""A suite with a test that sleeps for an hour."""

import time


def test_patience():
    time.sleep(3600)
