"""A real parallel filesystem for tests: a GlusterFS volume of two bricks on loopback.

It runs in namespaces of its own (mounts, network, processes), so that nothing of it outlives its script:

    isolated(script, *arguments)     runs a Python script as root of such namespaces
    with volume(tmp) as gluster:     in that script: a mounted volume
        gluster.path                 where it is mounted
        gluster.remount()            forgets what the client has cached
        gluster.profile()            {"bytes": ..., "OPEN": ..., "READ": ...} as the bricks counted since the last call
"""

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys

from clairmount import START_SECONDS, is_mounted, wait_until

HOST = "clairpfs"  # a brick's host may not be called localhost
CLIENT_CACHES = ("io-cache", "quick-read", "read-ahead", "open-behind", "stat-prefetch")


def missing():
    """Why no volume can be made here; empty if one can."""
    absent = [name for name in ("glusterd", "gluster", "glusterfs", "unshare", "ip") if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)} (tests/install-deps.sh test)" if absent else ""


def isolated(script, *arguments, seconds=240):
    """Runs a Python script in new namespaces; what it printed. All of its processes end with it."""
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    ran = subprocess.run(
        [*command, sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if ran.returncode != 0:
        raise AssertionError(f"{script}: exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


def run(*command):
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {ran.stdout}{ran.stderr}")
    return ran.stdout


class Volume:
    def __init__(self, tmp):
        self.path = tmp / "gluster"
        self.path.mkdir()
        self.name = "data"

    def mount(self):
        run("glusterfs", "-s", HOST, f"--volfile-id={self.name}", self.path)
        wait_until(lambda: is_mounted(self.path), "the volume is mounted")

    def remount(self):
        run("umount", self.path)
        self.mount()

    def profile(self):
        """Counts of all bricks together since the call before."""
        counts = {"bytes": 0}
        text = run("gluster", "volume", "profile", self.name, "info", "incremental")
        for line in text.splitlines():
            if found := re.match(r"\s*Data Read: (\d+) bytes", line):
                counts["bytes"] += int(found[1])
            elif found := re.match(r"\s*[\d.]+ +[\d.]+ ns.* (\d+) +([A-Z]+)$", line):
                counts[found[2]] = counts.get(found[2], 0) + int(found[1])
        return counts


@contextlib.contextmanager
def volume(tmp):
    """A mounted volume below `tmp`. Only in isolated(): it hides files of the machine and leaves its servers to the
    end of the namespace."""
    run("ip", "link", "set", "lo", "up")
    hosts = tmp / "hosts"
    hosts.write_text(pathlib.Path("/etc/hosts").read_text() + f"127.0.0.1 {HOST}\n")
    run("mount", "--bind", hosts, "/etc/hosts")
    for place in ("/var/lib/glusterd", "/var/run/gluster", "/var/log/glusterfs"):
        own = tmp / place.strip("/").replace("/", "-")
        own.mkdir()
        pathlib.Path(place).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", own, place)
    with subprocess.Popen(["glusterd", "-N"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            answers = lambda: subprocess.run(["gluster", "pool", "list"], capture_output=True, timeout=30).returncode == 0
            wait_until(answers, "glusterd answers", START_SECONDS)
            made = Volume(tmp)
            bricks = [f"{HOST}:{tmp}/brick{i}" for i in (1, 2)]
            run("gluster", "--mode=script", "volume", "create", made.name, *bricks, "force")
            for cache in CLIENT_CACHES:
                run("gluster", "--mode=script", "volume", "set", made.name, f"performance.{cache}", "off")
            run("gluster", "--mode=script", "volume", "start", made.name)
            run("gluster", "volume", "profile", made.name, "start")
            made.mount()
            yield made
            run("umount", "-l", made.path)
        finally:
            server.kill()
