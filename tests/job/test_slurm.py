"""The Slurm example on a real Slurm of three nodes: what ends in order, what fails, and what is left behind."""

import collections
import json
import os
import pathlib
import pwd
import shutil
import sys
import time

import clairmount
import pytest
import slurm
from clairmount import wait_until
from mounting import NOBODY, device_for_all
from training import BATCH, SEED, Dataset, orders

EXAMPLES = clairmount.REPO / "examples"
TRAINING = pathlib.Path(__file__).with_name("slurm_train.py")
NODES, RANKS_PER_NODE, EPOCHS = 3, 2, 3
RANKS = NODES * RANKS_PER_NODE
END_SECONDS = 60 * clairmount.SLOWNESS  # of what takes a few seconds

Place = collections.namedtuple("Place", "cluster data orders")


@pytest.fixture(scope="module")
def place():
    if why := slurm.missing():
        pytest.skip(why)
    with clairmount.tempdir() as tmp:
        (tmp / "cluster").mkdir()
        data = Dataset(tmp / "data/train", count=RANKS * BATCH * 5, size=30_000)
        with slurm.slurm(tmp / "cluster", NODES) as cluster:
            yield Place(cluster, data, orders(data.names, RANKS, EPOCHS))


@pytest.fixture(autouse=True)
def cleared(place, tmp):
    """Each test finds the nodes empty, whatever the one before left. Before tmp goes, where its jobs write."""
    yield
    place.cluster.clear()


class Job:
    """The example, changed in nothing but what its users would change, with a training that tells what it saw."""

    def __init__(self, place, folder, source=None, hold_after=None, user=0):
        self.cluster, self.folder = place.cluster, folder
        folder.mkdir()
        os.chown(folder, user, user)
        local = place.cluster.shared / "local"
        changes = {
            "data=/pfs/imagenet": f"data={source or place.data.root.parent}",
            "mount=/tmp/": f"mount={local}/",
            "nvme=/local/": f"nvme={local}/nvme-",
            '--nvme "$nvme"': '--nvme "$nvme:32M"',
            "seed=0 epochs=90": f"seed={SEED} epochs={EPOCHS}",
            "batch=32 workers=4": f"batch={BATCH} workers=0",
            "train.py": f"{folder}/train.py",
        }
        text = (EXAMPLES / "slurm.sbatch").read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (folder / "job.sbatch").write_text(text)
        shutil.copyfile(TRAINING, folder / "train.py")
        task = {
            "orders": {rank: [place.orders[rank, epoch] for epoch in range(EPOCHS)] for rank in range(RANKS)},
            "digests": {name: digest.hex() for name, digest in place.data.digests.items()},
            "batch": BATCH,
            "hold_after": hold_after,
        }
        (folder / "task.json").write_text(json.dumps(task))
        options = [f"--nodes={NODES}", f"--ntasks-per-node={RANKS_PER_NODE}", "--requeue"]
        self.number = self.cluster.submit(folder / "job.sbatch", *options, user=user)
        self.mount = local / f"{pwd.getpwuid(user).pw_name}-clairfs-{self.number}"

    def log(self):
        path = self.folder / f"job-{self.number}"
        return path.read_text() if path.exists() else ""

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        """A test that failed tells what Slurm and the job say."""
        if failure:
            print(f"--- job {self.number}\n{self.cluster.job(self.number)}\n{self.log()}---", file=sys.stderr)
            self.cluster.show()

    def left(self, name, run=0):
        """Which ranks, or nodes, have left a file of that name."""
        return sorted(path.name.split("-", 1)[1] for path in (self.folder / f"run-{run}").glob(f"{name}-*"))

    def wait_until_it_holds(self, run=0):
        def holds():
            state = self.cluster.job(self.number)["JobState"]
            assert state in ("PENDING", "RUNNING", "COMPLETING"), f"{state}\n{self.log()}"
            return len(self.left("holds", run)) == RANKS

        wait_until(holds, f"the training holds\n{self.cluster.job(self.number)}", END_SECONDS)

    def go(self):
        (self.folder / "go").touch()

    def assert_done(self, run=0):
        """It has ended well, and every rank has read every byte of its samples as the source has them."""
        assert self.cluster.wait(self.number, "COMPLETED", END_SECONDS)["ExitCode"] == "0:0"
        found = [json.loads((self.folder / f"run-{run}/done-{rank}").read_text()) for rank in range(RANKS)]
        assert found == [{"read": EPOCHS * BATCH * 5, "wrong": 0}] * RANKS
        assert len(self.left("stats", run)) == NODES

    def stat(self, *names, run=0):
        """One number of stats.json, summed over the nodes."""
        total = 0
        for path in (self.folder / f"run-{run}").glob("stats-*.json"):
            value = json.loads(path.read_text())
            for name in names:
                value = value[name]
            total += value
        return total


def assert_nothing_is_left(cluster):
    wait_until(cluster.idle, "all nodes are idle", END_SECONDS)
    wait_until(lambda: not cluster.processes(), "all processes end", END_SECONDS)
    for node in cluster.nodes:
        assert cluster.mounts(node) == []
        assert [path.name for path in cluster.local(node).iterdir() if not path.name.startswith("nvme-")] == []


def assert_an_empty_folder_is_left(job):
    """When a job is cancelled its script can do nothing any more on the nodes: the epilog can."""
    for node in job.cluster.nodes:
        (job.cluster.local(node) / job.mount.name).rmdir()
    assert_nothing_is_left(job.cluster)


def test_every_rank_reads_what_the_source_has(place, tmp):
    with Job(place, tmp / "job") as job:
        job.assert_done()
        assert job.stat("reads", "failed") == 0
        assert place.data.size <= job.stat("pfs", "bytes") <= 1.01 * place.data.size
        assert_nothing_is_left(place.cluster)


def test_a_source_that_is_missing_ends_the_job(place, tmp):
    """Long before the half hour that a mount may take is over."""
    with Job(place, tmp / "job", source=tmp / "absent") as job:
        assert place.cluster.wait(job.number, "FAILED", END_SECONDS)["ExitCode"] == "32:0"
        assert job.log().count(f"clairfs: source {tmp}/absent") == NODES
        assert_nothing_is_left(place.cluster)


def test_a_source_that_one_node_misses_ends_the_job(place, tmp):
    """At once, and not when the others are tired of waiting for that node."""
    source = place.cluster.shared / "local/data"
    for node in place.cluster.nodes[:-1]:
        (place.cluster.local(node) / "data").symlink_to(place.data.root.parent)
    with Job(place, tmp / "job", source=source) as job:
        assert place.cluster.wait(job.number, "FAILED", END_SECONDS)["ExitCode"] == "32:0"
        assert job.log().count(f"clairfs: source {source}") == 1
        for node in place.cluster.nodes[:-1]:
            (place.cluster.local(node) / "data").unlink()
        assert_nothing_is_left(place.cluster)


@pytest.mark.parametrize("spoken, status", [("none", 1), ("pmix", 32)])
def test_a_step_without_our_pmi_is_told_what_to_add(place, tmp, spoken, status):
    """Rather than each node taking itself for the whole job."""
    step = ["srun", "--nodes=2", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0", f"--mpi={spoken}"]
    if place.cluster.run(*step, "true", check=False).returncode != 0:
        pytest.skip(f"this Slurm has no --mpi={spoken}")
    ran = place.cluster.run(*step, "clairfs", "mount", "-f", place.data.root, tmp, check=False)
    assert ran.returncode == status and ran.stderr.count("--mpi=pmi2") == 2, ran.stderr
    assert_nothing_is_left(place.cluster)


def kill_daemon(job, node, user=0):
    """That node's readers get an error, those of the others their bytes."""
    cluster = job.cluster
    as_user = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups")
    cluster.run("kill", "-KILL", cluster.daemon(node))
    is_dead = lambda: "not connected" in cluster.on(node, *as_user, "stat", "-f", job.mount).stderr  # noqa: E731
    wait_until(is_dead, "the mount is dead", END_SECONDS)
    time.sleep(1.5)  # longer than WaitTime: nothing more is to happen
    for other in cluster.nodes:
        if other != node:
            assert cluster.on(other, *as_user, "cat", job.mount / ".clairfs/status").returncode == 0


def test_a_requeued_job_clears_the_dead_mount_of_its_first_run(place, tmp):
    cluster = place.cluster
    with Job(place, tmp / "job", hold_after=0) as job:
        job.wait_until_it_holds()
        kill_daemon(job, "n2")
        cluster.run("scontrol", "requeue", job.number)
        wait_until(lambda: cluster.job(job.number)["JobState"] == "PENDING", "the first run ends", END_SECONDS)
        wait_until(cluster.idle, "nothing of it is on its way", END_SECONDS)  # the second would be told of its end
        assert [cluster.mounts(node) for node in cluster.nodes] == [[], [str(job.mount)], []]
        # Slurm would let two minutes pass. A node refuses a job ("already killed") that is sent to it within the second, of the
        # clock, in which it was ended there; so one is enough. StartTime=now+1 would wait for the scheduler's next round.
        time.sleep(1)
        cluster.run("scontrol", "update", f"JobId={job.number}", "StartTime=now")
        job.go()
        job.assert_done(run=1)
        assert_nothing_is_left(cluster)


@pytest.mark.parametrize("user", [0, NOBODY])
def test_the_epilog_takes_a_dead_mount_away(place, tmp, user):
    """Where the job itself comes to nothing any more."""
    cluster = place.cluster
    epilog = tmp / "epilog.sh"
    epilog.write_text((EXAMPLES / "slurm-epilog.sh").read_text().replace("mount=/tmp/", f"mount={cluster.shared}/local/"))
    epilog.chmod(0o755)
    cluster.set_epilog(epilog)
    with device_for_all(), Job(place, tmp / "job", hold_after=0, user=user) as job:
        job.wait_until_it_holds()
        kill_daemon(job, "n3", user)
        cluster.run("scancel", job.number)
        cluster.wait(job.number, "CANCELLED", END_SECONDS)
        assert_nothing_is_left(cluster)


def test_scancel_leaves_nothing(place, tmp):
    with Job(place, tmp / "job", hold_after=1) as job:
        job.wait_until_it_holds()
        place.cluster.run("scancel", job.number)
        place.cluster.wait(job.number, "CANCELLED", END_SECONDS)
        wait_until(place.cluster.idle, "all nodes are idle", END_SECONDS)
        assert_an_empty_folder_is_left(job)


def test_a_warning_signal_ends_no_mount(place, tmp):
    """As of #SBATCH --signal=USR2@60: to all processes of all steps."""
    with Job(place, tmp / "job", hold_after=0) as job:
        job.wait_until_it_holds()
        place.cluster.run("scancel", "--signal=USR2", job.number)
        wait_until(lambda: len(job.left("warned")) == RANKS, "the ranks are warned", END_SECONDS)
        job.go()
        job.assert_done()
        assert_nothing_is_left(place.cluster)
