"""Ends the program, quite politely, when it is imported."""

import sys

sys.exit(0)
