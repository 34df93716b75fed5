"""What goes wrong is told: by status, top, stats.json and metrics, with the first name for the mount's owner."""

import ctypes
import json
import mmap
import os
import re
import subprocess

import pytest
from clairmount import REPO, binary, clairfs, drop_page_cache, make_tree, slowfs, wait_until
from mounting import NOBODY, as_user, cleaned, error_name, only_root, run


def troubles(mount):
    return {trouble["kind"]: trouble for trouble in mount.stats()["troubles"]}


def metric(mount, kind):
    lines = [line for line in mount.control("metrics").splitlines() if line.startswith("clairfs_troubles{")]
    found = [line.rsplit(" ", 1)[1] for line in lines if f'kind="{kind}"' in line]
    return float(found[0]) if found else 0


def test_no_trouble_is_none(tmp):
    make_tree(tmp / "src", {"a": 100})
    with clairfs(tmp / "src") as mount:
        (mount.path / "a").read_bytes()
        assert mount.stats()["troubles"] == []
        assert "clairfs_troubles" not in mount.control("metrics")
        assert "Troubles\n  none" in mount.control("status")


def test_every_trouble_has_a_cure_and_an_entry_in_the_manual():
    kinds = set(re.findall(r'(?:add\(|\{)\s*"([a-z]+_[a-z_]+)", ', (REPO / "fs/control/troubles.cc").read_text()))
    cured = set(re.findall(r'pair\{"([a-z_]+)"', (REPO / "mount-helper/inspect/findings.cc").read_text()))
    assert {"plan_failed", "source_silent", "nvme_cut_short"} <= kinds == cured
    manual = (REPO / "mount-helper/man/clairfs-troubleshooting.7.in").read_text()
    entries = re.findall(r"^\.TP\n(.*)", manual.split(".SH TROUBLES\n")[1].split("\n.SH ")[0], re.M)
    assert sorted(kind for entry in entries for kind in entry.split(", ")) == sorted(kinds)


def test_reads_of_changed_and_missing_files_are_told_once_each(tmp):
    make_tree(tmp / "src", {"gone": 100, "changed": 100, "well": 100})
    with clairfs(tmp / "src", "--allow-other") as mount:
        os.unlink(tmp / "src/gone")
        (tmp / "src/changed").write_bytes(b"something else")
        for name in ("changed", "gone"):
            for _ in range(2):
                assert error_name((mount.path / name).read_bytes) == "ESTALE"
        wait_until(lambda: "reads_refused" in troubles(mount), "counted, a moment after the answer")
        found = troubles(mount)
        assert found["reads_refused"]["first"] == "changed" and "reads_failed" not in found
        counted = found["reads_refused"]["count"]  # the others, too, a moment later
        assert int(re.search(r"(\d+) reads refused because", mount.control("status"))[1]) >= counted
        assert "the first: changed" in mount.control("status")
        assert metric(mount, "reads_refused") >= counted
        top = run("top", mount.path, "--once", "--interval=0.1").stdout
        assert "! " in top and "reads refused because" in top and "changed" in top
        if os.geteuid() == 0:  # others learn that, but no name
            path = mount.path / ".clairfs/stats.json"
            theirs = {t["kind"]: t for t in json.loads(as_user(NOBODY, path.read_text))["troubles"]}
            assert theirs["reads_refused"]["count"] >= 4 and "first" not in theirs["reads_refused"]
            assert "the first" not in as_user(NOBODY, (mount.path / ".clairfs/status").read_text)


def test_errors_of_the_source_name_the_first_file(tmp):
    make_tree(tmp / "src", {"bad": 100, "well": 100})
    with slowfs(tmp / "src") as pfs, clairfs(pfs.path) as mount:
        pfs.command("eio bad")
        assert error_name((mount.path / "bad").read_bytes) == "EIO"
        wait_until(lambda: "source_errors" in troubles(mount), "counted")
        assert troubles(mount)["source_errors"]["first"] == "bad (Input/output error)"
        assert (mount.path / "well").read_bytes() == (tmp / "src/well").read_bytes()


def test_a_source_that_hangs_is_a_trouble_as_long_as_it_does(tmp):
    make_tree(tmp / "src", {"hangs": 100, "well": 100})
    with slowfs(tmp / "src") as pfs, clairfs(pfs.path) as mount:
        pfs.command("hang hangs 600")  # seconds
        with subprocess.Popen(["cat", mount.path / "hangs"], stdout=subprocess.PIPE) as reader:
            try:
                wait_until(lambda: "source_silent" in troubles(mount), "noticed after five seconds")
                found = troubles(mount)["source_silent"]
                assert found["count"] == 1 and found["first"].startswith("hangs, for ") and "no answer" in found["text"]
                assert metric(mount, "source_silent") == 1 and mount.stat("pfs.silent") == 1
                assert "has had no answer yet" in mount.control("status").split("Troubles")[1]
            finally:
                pfs.command("clear")
            assert reader.communicate()[0] == (tmp / "src/hangs").read_bytes()
        assert "source_silent" not in troubles(mount) and mount.stat("pfs.silent") == 0


@only_root
def test_a_folder_that_could_not_be_listed_is_named(tmp):
    make_tree(tmp / "src", {"good/a": 10, "closed/b": 10})
    os.chmod(tmp / "src/closed", 0o000)
    (tmp / "mnt").mkdir()
    # Root without privilege over files, to whom the folder is closed.
    words = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", binary(), "mount", tmp / "src", tmp / "mnt"]
    with cleaned(tmp / "mnt"):
        made = subprocess.run([*words, "--catalog-dir", tmp / "catalog"], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        stats = json.loads((tmp / "mnt/.clairfs/stats.json").read_text())
        (trouble,) = stats["troubles"]
        assert (trouble["kind"], trouble["count"], trouble["first"]) == ("entries_unreadable", 1, "in closed")
        status = run("status", tmp / "mnt").stdout
        assert "1 entry could not be read" in status and "    in closed" in status
        assert "special" not in status  # zeros are left out


def test_a_suspended_plan_is_a_trouble(tmp):
    names = make_tree(tmp / "src", {f"{i:04}": 5000 for i in range(400)})
    with clairfs(tmp / "src") as mount:
        (mount.path / ".clairfs/plan").write_text("format=files seed=1 epochs=3 sampler=torch.random\n")
        for name in names:  # sequential instead of shuffled
            (mount.path / name).read_bytes()

        wait_until(lambda: "plan_suspended" in troubles(mount), "the plan is suspended")
        found = troubles(mount)["plan_suspended"]
        assert "plan default is suspended" in found["text"]
        wait_until(lambda: "left the plan at" in troubles(mount)["plan_suspended"].get("first", ""), "the reason")
        assert "plan default is suspended" in mount.control("status").split("Troubles")[1]
        assert metric(mount, "plan_suspended") == 1
        assert 'plan="default",state="suspended"} 1' in mount.control("metrics")
        assert "! " in run("top", mount.path, "--once", "--interval=0.1").stdout


def test_a_plan_whose_later_epoch_cannot_be_made_is_a_trouble(tmp):
    """Its list was written again under it: what was told in the log alone looked like a plan that nobody had set."""
    names = make_tree(tmp / "src", {f"{i:04}": 5000 for i in range(40)})
    order = "".join(f"{i}\n" for i in range(40)) + "\n"
    (tmp / "orders").write_text(8 * order)
    with clairfs(tmp / "src") as mount:
        (mount.path / ".clairfs/plan").write_text(f"format=files sampler=list list={tmp}/orders\n")
        (tmp / "orders").write_text(8 * order + "# again\n")
        for _ in range(8):
            for name in names:
                (mount.path / name).read_bytes()
        wait_until(lambda: "plan_failed" in troubles(mount), "the plan has ended")
        found = troubles(mount)["plan_failed"]
        assert "plan default could not be made: nothing is fetched ahead" in found["text"]
        assert re.fullmatch(rf"epoch \d could not be made: .*{tmp}/orders changed since .*", found["first"])
        assert found["first"] in mount.control("status").split("Troubles")[1]
        assert found["first"] in run("plan", "show", mount.path).stdout and found["first"] in mount.control("last_error")
        assert metric(mount, "plan_failed") == 1
        assert "! epoch" in run("top", mount.path, "--once", "--interval=0.1").stdout
        (mount.path / ".clairfs/plan").write_text("format=files sampler=torch.sequential\n")
        assert troubles(mount) == {}


@pytest.fixture
def small_disk(tmp):
    """A tmpfs of 64 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs takes root")
    (tmp / "disk").mkdir()
    assert ctypes.CDLL(None).mount(b"none", os.fsencode(tmp / "disk"), b"tmpfs", 0, b"size=64M") == 0
    yield tmp / "disk"
    subprocess.run(["umount", tmp / "disk"], check=True)


def test_a_full_disk_under_nvme(tmp, small_disk):
    """What a full disk withholds is no room, and the next mount finds nothing wrong with what there is."""
    make_tree(tmp / "src", {f"{i:03}": 1 << 20 for i in range(50)})
    nvme = f"--nvme={small_disk / 'nvme'}:48M"
    with clairfs(tmp / "src", "--ram=0", nvme) as mount:
        (small_disk / "others").write_bytes(bytes(40 << 20))  # somebody else fills it

        def full():  # a reader that is faster than the disk leaves it out, so it may take several rounds
            for name in os.listdir(mount.path):
                (mount.path / name).read_bytes()
            drop_page_cache(mount.path)
            return "nvme_full" in troubles(mount)

        wait_until(full, "growth has ended")
        found = troubles(mount)["nvme_full"]
        assert found["first"] == str(small_disk / "nvme") and "disk is full" in found["text"]
        tier = mount.stats()["tiers"]["nvme"]
        assert tier["full"] == 1 and 0 < tier["bytes"] <= tier["capacity"] < 30 << 20
        assert metric(mount, "nvme_full") == 1
        mount.umount()
        mount.remount()
        assert "contradicts itself" not in mount.log()
        assert mount.stat("tiers.nvme.chunks") > 0


@only_root
def test_a_dirty_page_is_a_trouble_with_its_writer(tmp):
    make_tree(tmp / "src", {"file": 4096})
    with clairfs(tmp / "src") as mount:
        remounted = subprocess.run(["mount", "-i", "-o", "remount,rw", mount.path], capture_output=True, text=True)
        if remounted.returncode != 0:
            pytest.skip("the mount cannot be made writable here: " + remounted.stderr)
        with open(mount.path / "file", "r+b") as file, mmap.mmap(file.fileno(), 4096) as memory:
            memory[0] ^= 1
            try:
                memory.flush()
            except OSError:
                pass
            # Before the writer ends its mapping, by which it is found.
            wait_until(lambda: "first" in troubles(mount).get("dirty_writes", {}), "the writer is named")
        assert troubles(mount)["dirty_writes"]["first"].startswith("file, by process ")
        assert metric(mount, "dirty_writes") >= 1
