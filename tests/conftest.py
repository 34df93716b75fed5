"""What all pytest suites share: the helpers of tests/support/python, and a marker per folder for tests/run.sh --label."""

import contextlib
import ctypes
import os
import pathlib
import signal
import sys
import tempfile
import threading

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "support/python"))

import clairmount  # noqa: E402  (after the path is set)


# A shell ignores them for what it starts in the background, and nohup for what it runs; children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def make_mount_namespace():
    """A mount namespace that a test makes copies all mounts, and so keeps the daemons of tests in another process alive."""
    clone_newns, ms_rec, ms_private = 0x20000, 0x4000, 1 << 18
    assert threading.current_thread() is threading.main_thread()  # what it starts is in its namespace
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(clone_newns) != 0 or libc.mount(b"none", b"/", None, ms_rec | ms_private, None) != 0:
        raise OSError(ctypes.get_errno(), "a mount namespace for the tests")


def pytest_configure():
    if "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0:
        make_mount_namespace()


@pytest.fixture(scope="session", autouse=True)
def no_mount_left():
    """Nobody else sees the mounts of a namespace of our own."""
    yield
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    ours = os.path.realpath(tempfile.gettempdir()) + "/clairfs-"

    def left():
        return [point for point in clairmount.mounts_below(tempfile.gettempdir()) if point.startswith(ours)]

    with contextlib.suppress(TimeoutError):  # a guard may still be clearing up after a daemon that was killed
        clairmount.wait_until(lambda: not left(), "no mount is left")
    assert not left(), left()


# The files that take longest. Workers of pytest-xdist take a file at a time, in the order of collection: one of these that
# begins last would keep a worker busy when the others have nothing left to do. Those that wait for timeouts (of jobs, and
# of sources that hang) stand between those that compute.
LONG = [
    "faults/test_job_nodes.py",
    "plan/records/test_records.py",
    "faults/test_job_tiers.py",
    "plan/inference/test_infer.py",
    "faults/test_source_errors.py",
    "plan/test_register.py",
    "faults/test_ends.py",
    "plan/test_streams.py",
    "job/test_slurm.py",
    "plan/records/test_hdf5_records.py",
    "job/test_job.py",
    "plan/test_plan_behaviour.py",
    "faults/test_wrong_bytes.py",
    "plan/inference/test_seeds.py",
]


def give_time(item, seconds):
    """Some times as much as is said at the test, or else for all."""
    if marked := item.get_closest_marker("timeout"):
        seconds = marked.args[0]
    item.add_marker(pytest.mark.timeout(seconds * clairmount.SLOWNESS), append=False)


def pytest_collection_modifyitems(config, items):
    first = {TESTS / name: place for place, name in enumerate(LONG)}
    assert all(path.exists() for path in first), "a file of LONG is gone"
    items.sort(key=lambda item: first.get(item.path, len(first)))
    for item in items:
        for folder in item.path.relative_to(TESTS).parts[:-1]:
            item.add_marker(folder)
        if clairmount.SLOWNESS > 1:
            give_time(item, float(config.getini("timeout")))


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
