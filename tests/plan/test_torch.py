"""Training jobs of the real PyTorch under a plan: the predicted order is the one in which the files are really
opened, the plan is followed to its end, and every byte is the source's."""

import sys

import clairmount
import pytest
from planning import make_images, plan, predicted, register, run_job, wait_ahead

pytest.importorskip("torch")
pytest.importorskip("torchvision")

PREFETCH = 2  # DataLoader's default


def assert_as_predicted(log, root, text, phase, epoch, rank, batch, workers):
    expected = predicted(root, text, epoch, rank)
    delivered = log.delivered[phase, rank]
    assert delivered == expected
    opened = log.opened[phase, rank]
    assert sorted(opened) == sorted(expected)
    slack = (PREFETCH * workers + 1) * batch
    places = {}
    for i, name in enumerate(expected):  # padding repeats samples
        places.setdefault(name, []).append(i)
    for i, name in enumerate(opened):
        assert min(abs(i - place) for place in places[name]) < slack, (i, places[name])


# CPython announces each open by an ioctl before 3.14. Later ones are followed by their READs alone. Of a dataset that is
# in the page cache there are few, and perhaps none near the end.
SEES_OPENS = sys.version_info < (3, 14)


def assert_followed(mount, name):
    state = plan(mount, name)
    assert state["state"] == "finished" or not SEES_OPENS, state
    assert (state["suspensions"], state["realignments"]) == (0, 0), state
    assert state["out_of_order"] == 0 or not SEES_OPENS, state
    assert "divergence" not in state
    assert state["in_order"] > 0


@pytest.mark.parametrize(("sampler", "workers"), [("distributed", 0), ("distributed", 4), ("random", 0), ("random", 2)])
def test_three_epochs_with_validation(images, tmp, sampler, workers):
    batch, epochs, seed = 8, 3, 42
    ranks = 2 if sampler == "distributed" else 1
    world = f"world={ranks} ranks_per_node={ranks} batch={batch} workers={workers}"
    train = f"format=imagefolder sampler=torch.{sampler} seed={seed} epochs={epochs} {world}"
    # Each rank validates on everything.
    val = f"name=val format=imagefolder sampler=torch.sequential epochs={epochs} {world}"
    with clairmount.clairfs(images, "--ram", "64M", "--staging", "64M") as mount:
        register(mount, train, "train")
        register(mount, val, "val")
        log = run_job(
            tmp / "log",
            train=mount.path / "train",
            val=mount.path / "val",
            sampler=sampler,
            seed=seed,
            ranks=ranks,
            batch=batch,
            workers=workers,
            epochs=epochs,
        )
        for epoch in range(epochs):
            for rank in range(ranks):
                root = images / "train"
                assert_as_predicted(log, root, train, f"train{epoch}", epoch, rank, batch, workers)
                assert_as_predicted(log, images / "val", val, f"val{epoch}", epoch, rank, batch, workers)
        log.assert_bytes_of(images)
        assert_followed(mount, "default")
        assert mount.stat("reads.failed") == 0
        assert_followed(mount, "val")


def test_links_to_images(tmp):
    """Several samples may be one file: an open does not say which of them it is."""
    make_images(tmp / "src", 1000, side=16)
    for i in range(0, 1000, 3):
        target = tmp / f"src/class{i % 6}/image{i:05d}.ppm"
        (tmp / f"src/class{(i + 1) % 6}/link{i:05d}.ppm").symlink_to(f"../{target.parent.name}/{target.name}")
    text = "format=imagefolder sampler=torch.random seed=1 epochs=3 batch=64 workers=2"
    with clairmount.clairfs(tmp / "src", "--ram", "64M", "--staging", "64M") as mount:
        register(mount, text)
        wait_ahead(mount, 300)
        log = run_job(tmp / "log", train=mount.path, sampler="random", seed=1, batch=64, workers=2)
        for epoch in range(3):
            assert_as_predicted(log, tmp / "src", text, f"train{epoch}", epoch, 0, 64, 2)
        log.assert_bytes_of(tmp, train="src")
        assert_followed(mount, "default")


@pytest.mark.parametrize("ram", ["256M", "16M"])
def test_files_of_110_kb(tmp, ram):
    """More than the window and, with 16 MiB, more than the tiers hold."""
    count, batch, epochs = 300, 16, 3
    make_images(tmp / "src/train", count, side=192)
    text = f"format=imagefolder sampler=torch.distributed seed=7 epochs={epochs} batch={batch} workers=2"
    with clairmount.clairfs(tmp / "src", "--ram", ram, "--staging", "8M") as mount:
        register(mount, text, "train")
        wait_ahead(mount, 50)
        log = run_job(
            tmp / "log", train=mount.path / "train", seed=7, batch=batch, workers=2, epochs=epochs
        )
        for epoch in range(epochs):
            assert_as_predicted(log, tmp / "src/train", text, f"train{epoch}", epoch, 0, batch, 2)
        log.assert_bytes_of(tmp / "src")
        assert_followed(mount, "default")
        assert mount.stat("staging.dropped") > 0
