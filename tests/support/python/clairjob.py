"""Jobs of several nodes for tests: mpiexec, one clairfs a rank, each with a mount of its own on this machine.

    with clairjob(tmp / "src", 4, "--ram", "64M") as job:
        job[2].path                # mount of rank 2; job[2].stats(), .control() as of a single mount
        job.kill(1)                # rank 1 dies; the others go on

Nothing is left behind, also when the test fails.
"""

import contextlib
import os
import signal
import subprocess
import sys

from clairmount import (
    START_SECONDS,
    STOP_SECONDS,
    ClairMount,
    MountError,
    binary,
    detach,
    is_mounted,
    tempdir,
    wait_until,
    words_of,
)

LAUNCH = ["mpiexec", "-disable-auto-cleanup"]
# Between mpiexec and a rank: hydra kills all ranks of a machine when one of them dies of a signal, whatever
# -disable-auto-cleanup says; a shell that ends with a status hides it. (With one rank a machine nothing is needed.)
SHELL = ["sh", "-c", "trap '' USR1; \"$@\"; exit $?", "rank"]


class Node(ClairMount):
    """One rank's mount. It is started and ended by its job."""

    def __init__(self, source, rank, tmp):
        (tmp / str(rank)).mkdir()
        super().__init__(source, [], tmp / str(rank))
        self.rank = rank

    def answers(self):
        """Whether the mount serves; a mount point that is not served yet would wait."""
        status = self.path / ".clairfs/status"
        return subprocess.run(["timeout", "2", "cat", status], capture_output=True, check=False).returncode == 0

    @property
    def pid(self):
        return self.stats()["daemon"]["pid"]


class ClairJob:
    """A job; make it with clairjob()."""

    def __init__(self, source, nodes, options, tmp, launch=LAUNCH, shell=SHELL):
        self.tmp = tmp
        self.launch, self.shell = launch, shell
        self.nodes = [Node(source, rank, tmp) for rank in range(nodes)]
        self.log_path = tmp / "log"
        self.process = None
        self.options = options
        self.pids = []
        self.killed = False

    def __getitem__(self, rank):
        return self.nodes[rank]

    def __len__(self):
        return len(self.nodes)

    def __iter__(self):
        return iter(self.nodes)

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self, env=None):
        command = [*self.launch, "-n", len(self), *self.shell, binary(), "mount", self.nodes[0].source, self.tmp / "{rank}/mnt", "-f"]
        command += ["--catalog-dir", self.tmp / "{rank}/catalog", *words_of(self.options)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                start_new_session=True,  # so that all of it can be killed
            )
        wait_until(self._usable, "all ranks serve", 2 * START_SECONDS)
        self.pids = [node.pid for node in self.nodes]

    def _usable(self):
        if self.process.poll() is not None:
            raise MountError(f"exit status {self.process.returncode}:\n{self.log()}")
        return all(is_mounted(node.path) for node in self.nodes) and all(node.answers() for node in self.nodes)

    def signal(self, rank, number):
        self.killed |= number == signal.SIGKILL
        os.kill(self.pids[rank], number)

    def kill(self, rank):
        """As a crash would; the stale mount is cleared."""
        self.signal(rank, signal.SIGKILL)
        wait_until(lambda: not _runs(self.pids[rank]), f"rank {rank} ends")
        detach(self.nodes[rank].path)

    def umount(self, rank):
        self.nodes[rank]._unmount()
        wait_until(lambda: not _runs(self.pids[rank]), f"rank {rank} ends", STOP_SECONDS)

    def end(self):
        """Unmounts all that is mounted; the job must then end by itself, each node well unless one was killed."""
        waiting = [
            subprocess.Popen([binary(), "umount", node.path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for node in self.nodes
            if is_mounted(node.path)
        ]
        for process in waiting:
            _, said = process.communicate(timeout=2 * STOP_SECONDS)
            assert process.returncode == 0, said
        status = self._ended()
        assert status == 0 or self.killed, f"exit status {status}"
        # UBSan ends a node, which the others may hide, and knows no log_path: see sanitizer_reports().
        assert "runtime error:" not in self.log(), self.log()

    def _ended(self):
        return self.process.wait(STOP_SECONDS)

    def stat(self, name):
        """One number of stats.json, summed over the nodes that are mounted."""
        return sum(node.stat(name) for node in self.nodes if is_mounted(node.path))

    def destroy(self):
        for pid in self.pids:
            if _runs(pid):
                os.kill(pid, signal.SIGKILL)
        self._kill_processes()
        for node in self.nodes:
            while is_mounted(node.path):
                detach(node.path)

    def _kill_processes(self):
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(STOP_SECONDS)

    @contextlib.contextmanager
    def scope(self):
        try:
            yield self
            self.end()
        except BaseException:
            print(f"--- log of the job in {self.tmp}\n{self.log()}---", file=sys.stderr)
            raise
        finally:
            self.destroy()


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return False


@contextlib.contextmanager
def clairjob(source, nodes, *options, env=None, launch=LAUNCH, shell=SHELL):
    """Mounts `source` on `nodes` ranks with the given words after `clairfs mount ... -f`, in which {rank} is replaced;
    yields a ClairJob. At the end every mount that is left is unmounted, and the job must end by itself and well."""
    with tempdir() as tmp:
        job = ClairJob(source, nodes, [str(o) for o in options], tmp, launch, shell)
        with job.scope():
            job.start(env)
            yield job
