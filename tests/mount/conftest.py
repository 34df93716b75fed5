import clairmount
import pytest
from nvme_data import SIZES


@pytest.fixture(scope="module")
def dataset():
    """A source for the NVMe tier, and the content of each file in it."""
    with clairmount.tempdir() as tmp:
        yield tmp / "src", clairmount.make_tree(tmp / "src", SIZES)


@pytest.fixture
def nvme(tmp):
    (tmp / "nvme").mkdir(mode=0o700)
    return tmp / "nvme"
