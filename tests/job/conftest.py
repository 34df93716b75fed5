"""The suites of jobs use the helpers of those of mounts and plans."""

import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / folder) for folder in ("mount", "plan")]
