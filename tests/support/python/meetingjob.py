"""Jobs of several nodes without a launcher, for tests: each node is a `clairfs mount --job` of its own.

    with meetingjob(tmp / "src", 3, "--ram", "64M") as job:
        ...                        # as of clairjob()

Nothing is left behind, also when the test fails.
"""

import contextlib
import os
import socket
import subprocess

from clairjob import ClairJob
from clairmount import START_SECONDS, STOP_SECONDS, MountError, binary, tempdir, wait_until


def free_port(host="127.0.0.1"):
    """Somebody else could take it before it is used: none of those that the kernel gives out by itself, so that only a
    program that asks for just this one could."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        lowest = int(file.read().split()[0])
    # Tests that run beside each other have neighbouring process ids, and are to try no neighbouring ports.
    for port in range(lowest - 1 - os.getpid() * 100 % 10_000, 1024, -1):
        with socket.socket() as probe:
            with contextlib.suppress(OSError):
                probe.bind((host, port))
                return port
    raise OSError("no port is free")


class MeetingJob(ClairJob):
    """A job without a launcher; make it with meetingjob()."""

    def __init__(self, source, nodes, options, tmp, port=None):
        super().__init__(source, nodes, options, tmp)
        self.at = f"127.0.0.1:{port or free_port()}"
        self.processes = []

    def command(self, rank, *words, named=True):
        """What mounts that rank; `named`: with the options that tell its place."""
        node = self.nodes[rank]
        place = ["--job", self.at, "--rank", rank, "--nodes", len(self)] if named else ["--job", self.at]
        command = [binary(), "mount", node.source, node.path, "--catalog-dir", node.catalog_dir, *place, *self.options]
        return [str(word) for word in [*command, *words]]

    def start_node(self, rank, *words, named=True, env=None):
        """In the foreground. Its process, whose output goes to the log of the job."""
        with open(self.log_path, "ab") as log:
            process = subprocess.Popen(
                self.command(rank, "-f", *words, named=named),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
            )
        self.processes.append(process)
        return process

    def start(self, env=None):
        """`env`: of each rank a dict, which then has to tell its place."""
        for rank in range(len(self)):
            self.start_node(rank, named=env is None, env=env and env(rank))
        self.await_all()

    def await_all(self):
        wait_until(self._usable, "all nodes serve", 2 * START_SECONDS)
        self.pids = [node.pid for node in self.nodes]

    def _usable(self):
        for process in self.processes:
            if process.poll() is not None:
                raise MountError(f"exit status {process.returncode}:\n{self.log()}")
        return all(node.answers() for node in self.nodes)

    def _ended(self):
        statuses = [process.wait(STOP_SECONDS) for process in self.processes]
        return max(map(abs, statuses), default=0)

    def _kill_processes(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(STOP_SECONDS)


@contextlib.contextmanager
def meetingjob(source, nodes, *options, start=True, env=None):
    """Mounts `source` on `nodes` nodes that meet at a port of this machine; yields a MeetingJob. With start=False the
    test starts them itself. At the end every mount that is left is unmounted, and each node must end well."""
    with tempdir() as tmp:
        job = MeetingJob(source, nodes, [str(option) for option in options], tmp)
        with job.scope():
            if start:
                job.start(env)
            yield job
