"""The fault matrix uses the helpers of the suites that it completes."""

import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / folder) for folder in ("mount", "plan", "job")]
