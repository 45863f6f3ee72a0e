"""The tests of this folder share what reads the repository's files."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
