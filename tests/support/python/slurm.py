"""A real Slurm for tests: several nodes on this machine, see slurm_cluster.sh.

    with slurm(tmp, nodes=3) as cluster:
        job = cluster.submit(script, "--nodes=3")
        cluster.wait(job, "COMPLETED")
        cluster.mounts("n1"), cluster.processes()      # of clairfs
        cluster.local("n1")                            # what cluster.shared / "local" is on that node
        cluster.clear()                                # for the next test, whatever this one left

Nothing of it is left behind, also when the test fails or is killed: processes, mounts, networks end with one process.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

from clairmount import SLOWNESS, START_SECONDS, STOP_SECONDS, binary, wait_until

SCRIPT = pathlib.Path(__file__).with_name("slurm_cluster.sh")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "unshare", "nsenter", "hostname")
COMMAND_SECONDS = 60 * SLOWNESS


def missing():
    """Why there can be no cluster here; empty if there can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if absent:
        return f"not installed: {', '.join(absent)} (tests/install-deps.sh test)"
    namespaces = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"]
    tried = subprocess.run([*namespaces, "ip", "link", "add", "bridge", "type", "bridge"], capture_output=True, text=True, check=False)
    return f"no namespaces with a bridge: {tried.stderr.strip()}" if tried.returncode != 0 else ""


class Slurm:
    """One cluster; make it with slurm()."""

    def __init__(self, shared, nodes):
        self.shared = shared
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        self.process = None
        self.hub = 0  # the first process of its namespaces

    def start(self):
        self.set_epilog(None)
        (self.shared / "bin").mkdir()
        shutil.copy(binary(), self.shared / "bin")  # the build may lie where the jobs' users may not go
        command = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with open(self.shared / "output", "wb") as output:
            self.process = subprocess.Popen(
                [*command, SCRIPT, self.shared, str(len(self.nodes))],
                stdin=subprocess.PIPE,  # its end is the cluster's
                stdout=output,
                stderr=output,
                env=self.environment(),
            )
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        wait_until(lambda: self.process.poll() is not None or children.read_text(), "the hub starts")
        wait_until(self.idle, "all nodes are idle", START_SECONDS)

    def environment(self):
        return {**os.environ, "PATH": f"{self.shared}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"}

    def idle(self):
        """Whether every node waits for jobs, with no step or epilog left of one before."""
        if self.process.poll() is not None:
            raise RuntimeError("the cluster has ended")
        if self.hub == 0:
            pid = self.process.pid
            self.hub = int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text())
        return [state for _, state in self.states()] == ["idle"] * len(self.nodes)

    def states(self):
        """[(node, what Slurm says of it: idle, mixed, completing, drained, ...)]"""
        lines = self.run("sinfo", "--noheader", "--Node", "--format=%N %T", check=False).stdout.splitlines()
        return [tuple(line.split()) for line in lines]

    def set_epilog(self, script):
        """What the nodes run at the beginning and the end of each job from now on; None: nothing."""
        new = self.shared / "epilog.new"
        new.write_text(f"#!/bin/sh\nexec {script}\n" if script else "#!/bin/sh\n")
        new.chmod(0o755)
        new.rename(self.shared / "epilog")

    def run(self, *command, check=True):
        """Runs a command on the hub, which knows no clairfs mounts; the completed process."""
        enter = ["nsenter", "-t", str(self.hub), "-m", "-r", "-w", "-n", "-u", "-i", "-p"]
        environment = ["env", f"SLURM_CONF={self.shared}/slurm.conf"]
        ran = subprocess.run(
            [*enter, *environment, *map(str, command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
            env=self.environment(),
        )
        if check and ran.returncode != 0:
            raise RuntimeError(f"{command}: exit status {ran.returncode}: {ran.stdout}{ran.stderr}")
        return ran

    def submit(self, script, *options, user=0):
        """The new job's number; its output goes to job-NUMBER in the script's folder, its user's home."""
        folder = pathlib.Path(script).parent
        become = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "env", f"HOME={folder}"]
        words = [*become, "sbatch", "--parsable", f"--chdir={folder}", f"--output={folder}/job-%j", "--open-mode=append", *options]
        return int(self.run(*words, script).stdout)

    def job(self, number):
        """What Slurm knows of a job: {"JobState": ..., "ExitCode": ..., ...}."""
        words = self.run("scontrol", "--oneliner", "show", "job", number).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, number, state, seconds=START_SECONDS):
        """Waits until a job is in a state, which no final one may come before; all of job()."""
        begin = time.monotonic()
        while (job := self.job(number))["JobState"] != state:
            if job["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"):
                raise RuntimeError(f"job {number} is {job['JobState']} ({job['ExitCode']}), not {state}")
            if time.monotonic() > begin + seconds:
                raise TimeoutError(f"job {number} is {job['JobState']}, not {state}, after {seconds} s")
            time.sleep(0.05)
        return job

    def local(self, node):
        """What is `shared`/local for the node, its mounts aside."""
        return self.shared / "nodes" / node

    def mounts(self, node):
        """The node's clairfs mounts, dead ones included."""
        pid = (self.shared / "run" / node).read_text().strip()
        lines = [line.split() for line in self.run("cat", f"/proc/{pid}/mounts").stdout.splitlines()]
        return [words[1] for words in lines if words[2] == "fuse.clairfs"]

    def processes(self):
        """All processes of clairfs, on whatever node: [(number on the hub, node, name)]."""
        lines = self.run("ps", "-e", "-o", "pid=,stat=,comm=").stdout.splitlines()
        found = []
        for pid, state, name in (line.split(None, 2) for line in lines):
            if name.startswith("clairfs") and not state.startswith("Z"):
                host = self.run("nsenter", "-t", pid, "-u", "hostname", check=False).stdout.strip()
                if host:  # else it has just ended
                    found.append((int(pid), host, name))
        return found

    def daemon(self, node):
        """The node's daemon, as the hub numbers it."""
        (pid,) = [pid for pid, host, name in self.processes() if (host, name) == (node, "clairfs")]
        return pid

    def on(self, node, *command):
        """Runs a command among the node's mounts and processes: /proc/self, which umount reads, is there for these only."""
        pid = (self.shared / "run" / node).read_text().strip()
        return self.run("nsenter", "-t", pid, "-m", "-r", "-w", f"--pid=/proc/{pid}/ns/pid_for_children", *command, check=False)

    def clear(self):
        """Waits until no job is left, nor anything of one on any node: what does not end in order is killed."""
        self.set_epilog(None)

        def is_clear():
            jobs = self.run("squeue", "--noheader", "--format=%A").stdout.split()
            if jobs:
                self.run("scancel", *jobs, check=False)
            processes = self.processes()
            for pid, _, _ in processes:  # first, for whoever waits for their answer cannot end before
                self.run("kill", "-KILL", pid, check=False)
            mounts = [(node, mount) for node in self.nodes for mount in self.mounts(node)]
            for node, mount in mounts:
                self.on(node, "umount", "--no-canonicalize", "-i", "-l", mount)
            for node, state in self.states():
                if state.startswith(("drain", "down")):  # by an epilog that failed, say
                    self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
            return not jobs and not processes and not mounts and self.idle()

        wait_until(is_clear, "nothing is left of any job", STOP_SECONDS)
        for node in self.nodes:
            for path in self.local(node).iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()  # and its child with it
            self.process.wait(STOP_SECONDS)
            raise

    def show(self):
        for path in [self.shared / "output", *(self.shared / "log").glob("*.log"), *self.shared.glob("**/job-*")]:
            print(f"--- {path}\n{path.read_text(errors='replace')[-4000:]}---", file=sys.stderr)


@contextlib.contextmanager
def slurm(shared, nodes):
    """A cluster whose nodes share the directory `shared`, which exists and is empty."""
    cluster = Slurm(pathlib.Path(shared), nodes)
    try:
        cluster.start()
        yield cluster
    except BaseException:
        cluster.show()
        raise
    finally:
        if cluster.process is not None:
            cluster.stop()
