"""Datasets of this folder's tests, and where their tools and the helpers of mounts are."""

import os
import pathlib
import sys

import clairmount
import pytest
from planning import make_images

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "mount"))


def pytest_configure():
    os.environ.setdefault("SAMPLER_TOOL", str(clairmount.build_dir() / "tests/sampler_tool"))


@pytest.fixture(scope="session")
def images():
    """600 small images to train on and 90 for validation, in class folders: train/ and val/."""
    with clairmount.tempdir() as tmp:
        make_images(tmp / "train", 600, side=16)
        make_images(tmp / "val", 90, side=16)
        yield tmp
