"""Twenty seconds of tests/soak.py on one mount and a minute on a job of four; a longer run is made by hand."""

import pathlib
import subprocess
import sys

import pytest
from clairmount import SLOWNESS

SOAK = pathlib.Path(__file__).resolve().parents[1] / "soak.py"


@pytest.mark.slow
@pytest.mark.alone  # it drops caches
@pytest.mark.timeout(700)
@pytest.mark.parametrize("ranks, seconds", [(1, 20), (4, 60)])
def test_soak(ranks, seconds):
    words = [sys.executable, SOAK, "--seconds", str(seconds), "--ranks", str(ranks)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as soak:
        try:
            said, _ = soak.communicate(timeout=600 * SLOWNESS)
        except BaseException:
            soak.terminate()  # then it unmounts
            try:
                print(soak.communicate(timeout=30)[0])
            finally:
                soak.kill()
            raise
    assert soak.returncode == 0, said
