"""Ends the process with the code of success, past every clean-up."""

import os

os._exit(0)
