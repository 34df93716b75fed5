"""A daemon is stopped, or the source's server is: commands end by themselves, and say who does not answer."""

import concurrent.futures
import contextlib
import signal
import subprocess
import sys

from clairmount import binary, clairfs, slowfs, wait_until
from faultlib import PATIENCE, make_dataset
from mounting import assert_one_line, run
from test_killed_daemon import stop

# Nothing of the mount is open in the test's own process: its children would wait when they close that.
READER = """
import hashlib, sys
with open(sys.argv[1], "rb") as file:
    print("open", flush=True)
    input()
    print(hashlib.sha256(file.read()).hexdigest())
"""
FILES = {"open/file": 3000, "folder/file": 5000}
COMMANDS = [
    "status {at}",
    "status --json {at}",
    "status {at}/folder/file",
    "top --once {at}",
    "plan {at} seed=1",
    "plan {at}/folder seed=1",
    "plan show {at}",
    "plan check {at}",
    "plan cancel {at}",
    "warmup {at} folder",
    "mount {source} {at}",
    "umount {at}",
]


@contextlib.contextmanager
def stopped(process):
    try:
        stop(process.pid)
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_commands_end_while_the_daemon_is_stopped(tmp):
    """So does the unmount that they advise; and who reads gets his bytes when the daemon goes on."""
    hashes = make_dataset(tmp / "src", FILES)
    with clairfs(tmp / "src") as mount, contextlib.ExitStack() as stack:
        words = [command.format(at=mount.path, source=mount.source).split() for command in COMMANDS]
        reading = [sys.executable, "-c", READER, mount.path / "open/file"]
        reader = stack.enter_context(subprocess.Popen(reading, stdin=-1, stdout=-1, text=True))
        stack.callback(reader.kill)
        assert reader.stdout.readline() == "open\n"
        with stopped(mount.process):
            reader.stdin.write("read\n")
            reader.stdin.flush()
            with concurrent.futures.ThreadPoolExecutor(len(words)) as pool:
                results = list(pool.map(lambda w: run(*w, timeout=PATIENCE), words))
            for result in results:
                assert_one_line(result, "does not answer", f"clairfs umount --lazy {mount.path}\n")
            assert f"{mount.path} is busy: used by" in results[-1].stderr
            assert run("umount", "--lazy", mount.path).returncode == 0
        assert reader.communicate(timeout=PATIENCE)[0].strip() == hashes["open/file"]
        assert mount.wait() == 0


def test_commands_end_that_name_what_hangs_otherwise(tmp):
    """By its name alone, in the folder that it is in; or as the place that they write to."""
    make_dataset(tmp / "src", FILES)
    with slowfs(tmp / "src", "--attr-timeout", "0", "--subtype", "clairfs") as hung:
        commands = (["plan", hung.path.name, "seed=1"], ["calibrate", tmp / "src", "-o", hung.path / "out"])

        def run_beside_it(words):
            words = [str(word) for word in (binary(), *words)]
            return subprocess.run(words, cwd=hung.path.parent, capture_output=True, text=True, timeout=PATIENCE, check=False)

        with stopped(hung.process), concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
            for result in pool.map(run_beside_it, commands):
                assert_one_line(result, "does not answer", f"clairfs umount --lazy {hung.path}\n", status=2)


def test_a_mount_is_refused_whose_own_directories_hang(tmp):
    """They are on no mount of clairfs: 'clairfs umount' would not help."""
    make_dataset(tmp / "src", FILES)
    with slowfs(tmp / "src", "--attr-timeout", "0") as hung:
        catalog = f"--catalog-dir={tmp}/catalog"
        asked = ([catalog, f"--nvme={hung.path}:64M"], [f"--catalog-dir={hung.path}/catalog"], [catalog, f"--log-file={hung.path}/log"])
        commands = [["mount", tmp / "src", place, catalog] for place in (hung.path, hung.path / "folder")]
        for i, options in enumerate(asked):  # each at a place of its own, which it claims while it waits
            (tmp / f"mnt{i}").mkdir()
            commands.append(["mount", tmp / "src", tmp / f"mnt{i}", *options])
        with stopped(hung.process), concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
            for result in pool.map(lambda words: run(*words, timeout=PATIENCE), commands):
                assert_one_line(result, hung.path, "does not answer", "check the filesystem", status=32)


def test_output_of_a_command_ends_with_it(tmp):
    """Also if a call into the source that it has given up lives on: a shell's $(...) waits for the end of the output."""
    make_dataset(tmp / "src", FILES)
    (tmp / "mnt").mkdir()
    with slowfs(tmp / "src", "--attr-timeout", "0") as pfs, contextlib.ExitStack() as stack:
        pfs.command("hang folder 3600")
        words = [binary(), "mount", pfs.path / "folder", tmp / "mnt", "--catalog-dir", tmp / "catalog"]
        stack.callback(pfs.kill, signal.SIGTERM)  # what was given up keeps its mount busy
        command = stack.enter_context(subprocess.Popen(words, stdout=-1, stderr=-1, text=True))
        stack.callback(command.kill)
        wait_until(lambda: pfs.counters()["pending"] > 0, "the source hangs")
        stack.enter_context(stopped(pfs.process))  # it would let go of a reader that is killed
        _, told = command.communicate(timeout=PATIENCE)
        assert command.returncode == 32 and f"{pfs.path}/folder does not answer" in told
