"""Two minutes of tests/soak.py, one mount and a job of four; a longer run is made by hand."""

import pathlib
import subprocess
import sys

import pytest

SOAK = pathlib.Path(__file__).resolve().parents[1] / "soak.py"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_soak(ranks):
    words = [sys.executable, SOAK, "--seconds", "60", "--ranks", str(ranks)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as soak:
        try:
            said, _ = soak.communicate(timeout=240)
        except BaseException:
            soak.terminate()  # then it unmounts
            try:
                print(soak.communicate(timeout=30)[0])
            finally:
                soak.kill()
            raise
    assert soak.returncode == 0, said
