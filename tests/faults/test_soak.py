"""Two minutes of tests/soak.py, one mount and a job of four; a longer run is made by hand."""

import pathlib
import subprocess
import sys

import pytest

SOAK = pathlib.Path(__file__).resolve().parents[1] / "soak.py"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_soak(ranks):
    soak = subprocess.run([sys.executable, SOAK, "--seconds", "60", "--ranks", str(ranks)], timeout=280,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert soak.returncode == 0, f"{soak.stdout}\n{soak.stderr}"
