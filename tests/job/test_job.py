"""Jobs of several nodes: one catalog, one plan, every byte once from the source, and what happens when nodes fail."""

import contextlib
import errno
import itertools
import os
import pathlib
import random
import re
import signal
import subprocess
import threading

import clairmount
import nvme_data
import pytest
from clairjob import LAUNCH, SHELL, clairjob
from clairmount import make_tree, slowfs, wait_until
from mounting import io_choices
from training import Dataset, Readers, peers, plans, register, register_on_all


@pytest.fixture(scope="module")
def data():
    with clairmount.tempdir() as tmp:
        yield Dataset(tmp / "src")


class Mounted:
    def __init__(self, path):
        self.path = path


@pytest.mark.parametrize("nodes", [1, 2, 8])
def test_every_byte_leaves_the_source_once(data, nodes):
    with slowfs(data.root, "--attr-timeout", "1000") as slow:
        ram = data.padded * 5 // 4 // nodes
        with clairjob(slow.path, nodes, "--ram", ram, "--staging", "2M") as job:
            slow.command("reset")
            register_on_all(job, nodes - 1, 3)
            Readers(data, job, 3).start().finish()
            counters = slow.counters()
            assert counters["opens_per_file_max"] == 1
            assert counters["bytes"] == data.size
            assert job.stat("reads.failed") == 0
            if nodes > 1:
                assert job.stat("peers.bytes_in") > data.size // 2
                assert job.stat("peers.bytes_in") == job.stat("peers.bytes_out")


@pytest.mark.parametrize("io", io_choices())
def test_ram_and_nvme_of_all_nodes(data, tmp, io):
    nodes, epochs = 4, 4
    for node in range(nodes):
        (tmp / f"nvme{node}").mkdir(mode=0o700)
    ram = data.padded // 4 // nodes
    disk = data.padded // 2 // nodes
    with slowfs(data.root, "--attr-timeout", "1000") as slow:
        options = ["--ram", ram, "--nvme", f"{tmp}/nvme{{rank}}:{disk}", "--staging", "1M", f"--io={io}"]
        with clairjob(slow.path, nodes, *options) as job:
            slow.command("reset")
            register_on_all(job, 0, epochs)
            Readers(data, job, epochs, pause=0.01).start().finish()
            least = data.size * (1 + (epochs - 1) * 0.25)
            assert slow.counters()["bytes"] <= 1.05 * least
            assert job.stat("reads.failed") == 0


def is_warmed_up(node):
    """The prefill is one pass: what a tier gives up after it, while NVMe is behind, comes back with the readers."""
    prefill = node.stats()["job"]["warm_up"]
    return prefill["done_bytes"] == prefill["total_bytes"] > 0


def test_restarted_with_nvme_for_all(data, tmp):
    """The RAM tiers of the first job are on NVMe for the second, which reads next to nothing from the PFS."""
    nodes, epochs = 2, 2
    ram = data.padded // 4 // nodes
    with slowfs(data.root, "--attr-timeout", "1000") as slow:
        options = ["--ram", ram, "--nvme", f"{tmp}/nvme{{rank}}:{2 * data.padded}", "--staging", "1M"]
        with clairjob(slow.path, nodes, *options) as job:
            register_on_all(job, 0, epochs)
            # Also with the copies that the placement gives each node: readers before that would need what is on its way.
            wait_until(lambda: all(map(is_warmed_up, job)), "all is fetched to where it was placed")
            Readers(data, job, epochs).start().finish()
            assert job.stat("tiers.ram.bytes") > 0.9 * nodes * ram
            job.end()
            slow.command("reset")
            job.start()
            register_on_all(job, 1, epochs)
            Readers(data, job, epochs).start().finish()
            # It should be 0. Now and then a chunk or two are read though all are on NVMe; the cause is not known.
            assert slow.counters()["bytes"] == job.stat("pfs.bytes") <= 0.01 * data.size
            warm = job.stat("tiers.nvme.warm_bytes")
            assert warm >= 0.99 * data.size

            def is_bounded(node):
                told = node.stats()["job"]
                all_told = sum(peer["warm_bytes"] for peer in told["peers"]) == warm
                return all_told and told["least_pfs_bytes"] <= told["total"]["pfs_bytes"]

            wait_until(lambda: all(is_bounded(node) for node in job), "what is read is no less than the lower bound")
            assert job.stat("reads.failed") == 0


def test_only_one_node_scans(data):
    with slowfs(data.root, "--attr-timeout", "0") as slow:
        with clairjob(slow.path, 1):
            alone = slow.counters()["ops"]
        slow.command("reset")
        with clairjob(slow.path, 4) as job:
            together = slow.counters()["ops"]
            assert {node.stats()["catalog"]["files"] for node in job} == {len(data.names)}
        assert together.get("readdir", 0) <= alone.get("readdir", 0)
        # The others look at a few files to know that theirs is the same dataset.
        assert together["getattr"] < alone["getattr"] + 4 * 100


def test_a_plan_registered_on_one_node_is_in_force_on_all(data):
    with clairjob(data.root, 3) as job:
        register(job[1], 3, 5)
        wait_until(lambda: all(len(p) == 1 for p in plans(job)), "all have the plan")
        first = plans(job)
        assert first[0] == first[1] == first[2]
        register(job[2], 3, 5)  # the same text is the same plan
        with pytest.raises(OSError):
            register(job[0], 3, 6)  # another one under its name is refused
        assert "registered on node 1" in job[0].control("last_error")
        assert plans(job) == first
        (job[0].path / ".clairfs/plan").write_text("cancel\n")
        wait_until(lambda: not any(plans(job)), "the plan is gone")


class Launched:
    def __init__(self, log, words):
        self.log, self.words = log, words

    def count(self, text):
        return self.log.read_text(errors="replace").count(text)

    def has_said(self, text):
        return self.count(text) > 0

    def signal(self, name):
        """To all nodes."""
        nodes = "^[^ ]*clairfs mount -f " + re.escape(" ".join(map(str, self.words)))  # not what launches them
        subprocess.run(["pkill", f"-{name}", "-f", nodes], check=True)


@contextlib.contextmanager
def launched(*words, through=()):
    """A job of two nodes that is to fail, or to be disturbed at its start; `through` starts the program of a node."""
    with clairmount.tempdir() as tmp:
        command = [*LAUNCH, "-n", "2", *SHELL, *through, clairmount.binary(), "mount", "-f", *map(str, words)]
        with open(tmp / "log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            yield Launched(tmp / "log", words)
        finally:
            subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
            process.wait(60)
            for word in filter(os.path.isabs, words):  # not what lies below the current directory
                for mount in clairmount.mounts_below(pathlib.Path(word).parent):
                    clairmount.detach(mount)


def test_a_node_with_another_source_refuses(data, tmp):
    """The others go on without it."""
    make_tree(tmp / "src1", {"class000/other.png": 30_000})
    os.symlink(data.root, tmp / "src0")
    (tmp / "mnt0").mkdir()
    (tmp / "mnt1").mkdir()
    with launched(tmp / "src{rank}", tmp / "mnt{rank}", "--catalog-dir", tmp / "catalog{rank}") as job:
        wait_until(lambda: job.has_said("the source on this node is not the one that the job has scanned"), "node 1 refuses")
        wait_until(lambda: (tmp / "mnt0" / data.names[0]).exists(), "rank 0 serves")
        data.check(Mounted(tmp / "mnt0"), data.names[0])
        wait_until(lambda: not clairmount.is_mounted(tmp / "mnt1"), "rank 1 leaves no mount")


def test_warnings_of_batch_systems_end_no_node(data, tmp):
    """Node 0 is warned while it waits in MPI_Init for the other one, which is held up; then both, and their guards."""
    points = [tmp / "mnt0", tmp / "mnt1"]
    for point in points:
        point.mkdir()
    held_up = ["sh", "-c", f'[ "$PMI_RANK" = 0 ] || until [ -e {tmp}/go ]; do sleep 0.1; done; exec "$@"', "held-up"]
    guards = f"^clairfs guard {re.escape(str(tmp))}/"
    with launched(data.root, tmp / "mnt{rank}", "--catalog-dir", tmp / "catalog{rank}", through=held_up) as job:

        def warn():
            for name in ("USR1", "USR2", "XCPU", "URG"):
                job.signal(name)
                subprocess.run(["pkill", f"-{name}", "-f", guards], check=True)

        wait_until(lambda: subprocess.run(["pgrep", "-f", guards], capture_output=True, check=False).stdout, "node 0 is guarded")
        warn()
        (tmp / "go").touch()
        wait_until(lambda: all((point / data.names[0]).exists() for point in points), "both serve")
        warn()
        for point, name in itertools.product(points, data.names):
            data.check(Mounted(point), name)


@pytest.mark.parametrize("there", [0, 1])
def test_a_node_that_cannot_mount_says_so_to_the_other(data, tmp, there):
    """And that one does not wait for it: it goes on alone, or ends if it was to be sent the catalog."""
    os.symlink(data.root, tmp / f"src{there}")
    for name in ("mnt0", "mnt1"):
        (tmp / name).mkdir()
    with launched(tmp / "src{rank}", tmp / "mnt{rank}", "--catalog-dir", tmp / "catalog{rank}") as job:
        wait_until(lambda: job.has_said(f"clairfs: source {tmp}/src{1 - there}: No such file"), "one refuses")
        wait_until(lambda: job.has_said(f"left: it cannot mount: source {tmp}/src{1 - there}: No such file"), "the other is told why")
        if there == 0:
            wait_until(lambda: (tmp / "mnt0" / data.names[0]).exists(), "it serves")
            data.check(Mounted(tmp / "mnt0"), data.names[0])
        else:
            wait_until(lambda: job.has_said("node 0, which scans the dataset, is gone"), "it ends, too")
            wait_until(lambda: not clairmount.mounts_below(tmp), "no mount is left")


@pytest.mark.parametrize(
    ("wrong", "why"), [("ram=lots", "'lots'"), ("log-file=/proc/no/log", "/proc/no/log")], ids=["option", "log-file"]
)
def test_a_node_whose_options_are_wrong_says_so_to_the_other(data, tmp, wrong, why):
    for name in ("mnt0", "mnt1"):
        (tmp / name).mkdir()
    (tmp / "bad.conf").write_text(wrong + "\n")
    bad = ["sh", "-c", f'[ "$PMI_RANK" = 1 ] || exec "$@"; exec "$@" --config {tmp}/bad.conf', "bad"]
    with launched(data.root, tmp / "mnt{rank}", "--catalog-dir", tmp / "catalog{rank}", through=bad) as job:
        wait_until(lambda: job.has_said("left: it cannot mount: ") and job.has_said(why), "the other is told why")
        wait_until(lambda: (tmp / "mnt0" / data.names[0]).exists(), "it serves")
        data.check(Mounted(tmp / "mnt0"), data.names[0])


def test_a_node_that_waits_ends_when_it_is_told_to(data, tmp):
    held_up = ["sh", "-c", '[ "$PMI_RANK" = 0 ] || exec sleep 1000; exec "$@"', "held-up"]
    (tmp / "mnt").mkdir()
    with launched(data.root, tmp / "mnt", "--catalog-dir", tmp / "catalog", through=held_up) as job:
        wait_until(lambda: job.has_said("waiting for 1 other node"), "it waits")
        wait_until(lambda: clairmount.is_mounted(tmp / "mnt"), "its mount point is there")
        job.signal("TERM")
        wait_until(lambda: not clairmount.is_mounted(tmp / "mnt"), "it ends though the first never comes")
        assert not job.has_said("not all 2 nodes of the job have come")  # as it ends by itself


def test_two_nodes_on_one_mount_point_refuse(data, tmp):
    (tmp / "mnt").mkdir()
    with launched(data.root, tmp / "mnt", "--catalog-dir", tmp / "catalog") as job:
        wait_until(lambda: job.has_said("write {rank} where their paths are to differ"), "one refuses")
        wait_until(lambda: job.has_said("left: it cannot mount: "), "the other is told")


def test_a_source_without_a_file_ends_the_job(tmp):
    """As where the parallel filesystem is not mounted on the node that scans."""
    for name in ("src", "mnt0", "mnt1"):
        (tmp / name).mkdir()
    with launched(tmp / "src", tmp / "mnt{rank}", "--catalog-dir", tmp / "catalog{rank}") as job:
        wait_until(lambda: job.has_said("has no files; is its filesystem mounted?"), "node 0 refuses")
        wait_until(lambda: job.has_said("node 0, which scans the dataset, is gone"), "node 1 ends too")
        wait_until(lambda: not clairmount.mounts_below(tmp), "no mount is left")


def test_without_mpi_it_says_what_is_missing(data, tmp, monkeypatch):
    """Each node does; and one that is no node of a job needs no MPI."""
    monkeypatch.setenv("CLAIRFS_MPI_LIBRARY", str(tmp / "libmpi.so.12"))
    for name in ("mnt0", "mnt1"):
        (tmp / name).mkdir()
    options = [data.root, tmp / "mnt{rank}", "--catalog-dir", tmp / "catalog{rank}"]
    with launched(*options) as job:
        wait_until(lambda: job.count("libmpi.so.12: cannot open shared object file") == 2, "both say what is missing")
        wait_until(lambda: job.count("apt install mpich") == 2, "and where it is to be had")
        wait_until(lambda: not clairmount.mounts_below(tmp), "no mount is left")
    with launched(*options, "--peers=off"):
        wait_until(lambda: all((tmp / mount / data.names[0]).exists() for mount in ("mnt0", "mnt1")), "both serve")
        data.check(Mounted(tmp / "mnt1"), data.names[0])


def test_what_people_see(data):
    ram = data.padded // 6  # the tiers keep half, the page caches what their readers had
    with clairjob(data.root, 3, "--ram", ram) as job:
        register_on_all(job, 0, 3)
        Readers(data, job, 3).start().finish()
        text = job[0].control("peers")
        assert all(f" {rank} " in text for rank in range(3))
        for rank, node in enumerate(job):
            others = [p for p in peers(node) if p["rank"] != rank]
            assert [p["state"] for p in others] == ["alive"] * 2
            assert all(p["bytes_in"] > 0 and p["bytes_out"] > 0 for p in others)
        homes = [{os.getxattr(node.path / name, "user.clairfs.home") for node in job} for name in data.names[:30]]
        assert all(len(home) == 1 for home in homes) and any(home.pop().startswith(b"node ") for home in homes)
        words = [clairmount.binary(), "warmup", "--check", job[1].path]
        kept = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
        found = re.search(r"kept .*; at home: node 0 ([^,]+), node 1 ([^,]+), node 2 ([^;\n]+)", kept)
        assert found and all(size != "0 B" for size in found.groups()), kept
        assert "lower bound" in job[2].control("status")
        told = lambda: job[2].stats()["job"]  # noqa: E731  (of the others what they said a second ago)
        assert data.size <= told()["least_pfs_bytes"]
        wait_until(lambda: told()["least_pfs_bytes"] <= told()["total"]["pfs_bytes"], "all have said what they read")


def test_a_node_that_dies_costs_no_read(data):
    nodes, epochs, victim = 4, 4, 2
    ram = data.padded * 5 // 4 // nodes
    with slowfs(data.root, "--attr-timeout", "1000", "--latency", "500") as slow:
        with clairjob(slow.path, nodes, "--ram", ram, "--staging", "2M") as job:
            register_on_all(job, 0, epochs)
            living = [node for node in range(nodes) if node != victim]
            readers = Readers(data, job, epochs, pause=0.02, nodes=living).start()
            wait_until(lambda: min(readers.done.values()) > len(data.names) // nodes * 1.3, "the second epoch")
            job.signal(victim, signal.SIGKILL)
            readers.finish()
            # Who is silent is late after three seconds and dead after fifteen: faults/test_job_nodes.py waits for that.
            known = ("late", "dead", "left")
            wait_until(lambda: all(peers(job[n])[victim]["state"] in known for n in living), "the others know")
            assert sum(job[n].stat("reads.failed") for n in living) == 0
            clairmount.detach(job[victim].path)


def test_one_node_leaves_while_the_others_go_on(data):
    with clairjob(data.root, 3, "--ram", "64M") as job:
        register_on_all(job, 0, 4)
        readers = Readers(data, job, 4, pause=0.01, nodes=[0, 1]).start()
        wait_until(lambda: min(readers.done.values()) > 200, "an epoch")
        job.umount(2)
        readers.finish()
        assert peers(job[0])[2]["state"] == "left"


def test_random_files_under_a_plan(data):
    """Reads that no plan knows of are right too, whoever has the bytes."""
    with clairjob(data.root, 4, "--ram", "2M", "--staging", "1M") as job:
        register_on_all(job, 0, 2)
        chance = random.Random(3)

        def read(node):
            for _ in range(300):
                data.check(job[node], chance.choice(data.names))

        threads = [threading.Thread(target=read, args=(node,)) for node in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        assert job.stat("reads.failed") == 0


def test_warm_nvme_stores_of_another_version(tmp):
    """Only rank 0 looks whether its saved catalog still holds, yet no node serves old bytes from its store."""
    # More than memory on its way holds, which would answer for what NVMe was too busy to take.
    contents = make_tree(tmp / "src", {f"{i:03}": 64_000 for i in range(400)})
    # The nodes compare 16 files with their own source at the start, drawn by what the catalog says: with the same
    # mtimes always the same ones, and `changed` is none of them.
    for name in contents:
        os.utime(tmp / "src" / name, ns=(0, 1_700_000_000 * 10**9))
    changed = "201"
    options = ["--nvme", f"{tmp}/nvme{{rank}}:64M", "--ram=0", "--chunk=64K", "--check=directories"]
    with clairjob(tmp / "src", 2, *options) as job:
        for node in job:
            nvme_data.fill(node, contents, len(contents))
        job.end()
        with open(tmp / "src" / changed, "r+b") as file:
            file.write(bytes(byte ^ 0xFF for byte in contents[changed]))
        job.start()
        assert "reloaded" in job[0].control("status")
        for node in (job[1], job[0]):
            assert os.getxattr(node.path / changed, "user.clairfs.tier") == b"nvme"
            assert all((node.path / name).read_bytes() == contents[name] for name in contents if name != changed)
            with pytest.raises(OSError) as refused:
                (node.path / changed).read_bytes()
            assert refused.value.errno in (errno.ESTALE, errno.EIO)
