"""What all pytest suites share: the helpers of tests/support, and a marker per folder for tests/run.sh --label."""

import pathlib
import signal
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "support"))

import clairmount  # noqa: E402  (after the path is set)


# A shell ignores them for what it starts in the background, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_modifyitems(items):
    for item in items:
        for folder in item.path.relative_to(TESTS).parts[:-1]:
            item.add_marker(folder)


@pytest.fixture(scope="session", autouse=True)
def sanitizer_reports():
    with clairmount.sanitizer_reports() as check:
        yield check


@pytest.fixture(autouse=True)
def no_sanitizer_report(sanitizer_reports):
    """Set up first, so that all that the test has started has ended."""
    yield
    sanitizer_reports()


@pytest.fixture
def tmp():
    """A temporary directory that is removed even when something is still mounted in it."""
    with clairmount.tempdir() as path:
        yield path
