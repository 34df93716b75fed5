"""Rows of HDF5 files under a plan, read by h5py as people read them: the plan is followed to its end, every byte is the
source's, and what a reader finds pushed costs it no request."""

import subprocess

import clairmount
import pytest
from planning import plan, register

h5py = pytest.importorskip("h5py")
np = pytest.importorskip("numpy")
pytest.importorskip("torch")

import records_job  # noqa: E402  (needs numpy)
from record_plans import (  # noqa: E402
    BATCH,
    assert_followed,
    order_of,
    requests_of,
    sampler,
    start,
    train,
    wait_finished,
    wait_ready,
)


def noise(count, size, dtype="u1"):
    """Of which gzip makes a half."""
    items = size // np.dtype(dtype).itemsize
    return np.random.default_rng(1).integers(0, 16, (count, items)).astype(dtype)


def write(path, rows, libver="earliest", **how):
    """The rows, and two datasets that other scripts read with them."""
    count = len(rows)
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("images", data=rows, **how)
        file.create_dataset("labels", data=np.arange(count))
        file.create_dataset("depth", data=noise(count, 8192, "f4"), chunks=(1, 2048))


# Rows on both sides of a page, and of the 64 KiB that libhdf5 reads at a time where it reads no whole chunks.
SMALL, MIDDLE, LARGE = 3000, 16_000, 110_000
LAYOUTS = {
    "contiguous": {},
    "row": {"chunks": 1},
    "rows": {"chunks": 5},
    "gzip": {"chunks": 1, "compression": "gzip", "compression_opts": 1, "shuffle": True},
    "gzip.rows": {"chunks": 8, "compression": "gzip", "compression_opts": 1},
    "latest": {"chunks": 1, "libver": "latest"},
    "float": {"chunks": 1, "dtype": "f4"},
}


def dataset(folder, layout, count, size):
    how = dict(LAYOUTS[layout])
    rows = noise(count, size, how.pop("dtype", "u1"))
    if "chunks" in how:
        how["chunks"] = (how["chunks"], rows.shape[1])
    folder.mkdir()
    write(folder / "rows.h5", rows, **how)
    return rows


ALL = [*[(layout, 2000, SMALL) for layout in LAYOUTS], ("contiguous", 800, MIDDLE), *[(layout, 300, LARGE) for layout in LAYOUTS]]


@pytest.mark.parametrize(("layout", "count", "size", "shuffle"), [
    *[(*rows, True) for rows in ALL],
    # The order shows where a read brings several rows; rows in chunks of their own are read alike in any.
    *[(*rows, False) for rows in ALL if rows[0] in ("contiguous", "rows", "gzip.rows")],
])
def test_pushed_before_it_is_read(tmp, layout, count, size, shuffle):
    """A reader that always has staging before it: it waits, so that no clock decides."""
    rows = dataset(tmp / "src", layout, count, size)
    text = f"format=hdf5 file=rows.h5 dataset=/images,/labels {sampler(shuffle, batch=BATCH, seed=5, epochs=2)}"
    order = order_of(text, tmp / "src", 2)
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "16M") as mount:
        start(mount, text)
        read = records_job.open_h5py({"path": str(mount.path / "rows.h5"), "datasets": ["images", "labels"]})
        for n, i in enumerate(order):
            if n % BATCH == 0:
                # No more: of a dataset that stays there no sample of the next epoch is ahead as long as it has not been
                # read in this one.
                wait_ready(mount, n, len(order), BATCH)
            assert read(i) == rows[i].tobytes() + np.int64(i).tobytes(), i
        wait_finished(mount)
        stats = mount.stats()
        assert_followed(plan(mount))
        del read
    reads = requests_of(stats)
    print(layout, count, size, reads, stats["reads"], stats["pfs"]["bytes"] / rows.nbytes, stats["staging"])
    taken_back = len(order) // 100  # by the kernel, see test_records.py
    assert reads <= stats["staging"]["sentinels"] + 10 + taken_back


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize(("layout", "count", "size"), [("contiguous", 2000, SMALL), ("contiguous", 400, LARGE),
                                                       ("gzip", 2000, SMALL), ("latest", 400, LARGE)])
def test_loader_with_workers(tmp, layout, count, size, workers):
    """torch's DataLoader and DistributedSampler; each worker opens the file for itself. Two datasets, of which both are
    large; the third is not part of the plan."""
    rows = dataset(tmp / "src", layout, count, size)
    depth = noise(count, 8192, "f4")
    text = f"format=hdf5 file=rows.h5 dataset=/images,/depth {sampler(True, batch=BATCH, seed=3, epochs=2, workers=workers)}"
    with clairmount.clairfs(tmp / "src", "--ram", "16M", "--staging", "16M") as mount:
        start(mount, text)
        train(mount, tmp, [row.tobytes() + depth[i].tobytes() for i, row in enumerate(rows)], path="rows.h5", reader="h5py",
              datasets=["/images", "/depth"], seed=3, workers=workers, batch=BATCH, epochs=2, pause=0.005)
        stats = mount.stats()
    print(layout, count, size, workers, requests_of(stats) / (2 * count), stats["reads"], stats["pfs"]["bytes"], stats["staging"])


def test_the_index_serves_later_mounts_of_an_unchanged_file(tmp):
    dataset(tmp / "src", "row", 2000, SMALL)

    def samples():
        words = [clairmount.binary(), "index", mount.path / "rows.h5", "dataset=/images,/labels"]
        report = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
        return next(line for line in report.splitlines() if line.startswith("samples"))

    with clairmount.clairfs(tmp / "src", "--ram", "16M") as mount:
        first = samples()
        assert "2000 in 1 file (format=hdf5)" in first
        read = mount.stats()["pfs"]["bytes"]
        assert 0 < read < 2000 * SMALL / 20
        mount.remount()
        assert samples() == first
        assert mount.stats()["pfs"]["bytes"] == 0
        register(mount, "format=hdf5 file=rows.h5 dataset=/images,/labels shuffle=false")
        assert plan(mount)["samples"] == 2000
        mount.umount()
        (tmp / "src/rows.h5").unlink()
        write(tmp / "src/rows.h5", noise(1000, SMALL), chunks=(1, SMALL))
        mount.remount()
        assert "1000 in 1 file" in samples()
