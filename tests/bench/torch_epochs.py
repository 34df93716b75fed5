#!/usr/bin/python3
"""Real training: examples/quickstart_train.py (PyTorch, a small CNN) on Debian's clip-art collection.

    tests/bench/torch_epochs.py [--quick] [--rounds N] [--json FILE]

The images lie on an emulated PFS of 3 ms an open and 3 ms a read, 200 MB/s. The script reads the PFS itself, through
clairfs as it is, and through clairfs with its shuffle registered as a plan; the images' own directory, warm, shows what
the computing alone takes. The script is the same each time, and only its dataset's path differs. Its loss is compared:
other data, or another order, would give another one.
"""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

import benchlib
import clairmount
from benchlib import Findings, Table, progress

DATASET = pathlib.Path("/usr/share/openclipart/png")
TRAIN = clairmount.REPO / "examples/quickstart_train.py"
EPOCHS = 3
WORKERS = 2
BATCH = 64
SEED = 42
EPOCH = re.compile(r"epoch \d+: (\d+) samples in ([\d.]+) s, loss ([\d.]+)")
PLAN = f"format=imagefolder sampler=torch.random seed={SEED} epochs={EPOCHS} batch={BATCH} workers={WORKERS}\n"
SYSTEMS = {
    "local": "the images' own directory, warm",
    "pfs": "the PFS itself",
    "no plan": "clairfs without a plan",
    "plan": "clairfs with a plan",
}


def what_is_missing():
    """The Debian packages."""
    modules = {"torch": "python3-torch", "torchvision": "python3-torchvision", "PIL": "python3-pil"}
    missing = [package for module, package in modules.items() if importlib.util.find_spec(module) is None]
    return " ".join(missing if DATASET.is_dir() else [*missing, "openclipart-png"])


def take_images(root, every):
    """Copies one image in `every`, links followed, with its class. Returns how many bytes they have."""
    total = 0
    for path in sorted(DATASET.glob("**/*.png"))[::every]:
        target = root / path.relative_to(DATASET)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        total += target.stat().st_size
    return total


def train(root):
    """(samples, seconds, loss) of each epoch."""
    command = [sys.executable, TRAIN, root, "--epochs", EPOCHS, "--workers", WORKERS]
    command += ["--batch-size", BATCH, "--seed", SEED]
    run = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, timeout=3 * benchlib.READ_SECONDS, check=True
    )
    return [(int(samples), float(seconds), loss) for samples, seconds, loss in EPOCH.findall(run.stdout)]


def emulated_pfs(source):
    return clairmount.slowfs(source, "--open-latency", "3000", "--read-latency", "3000", "--bandwidth", "200M")


def train_through(system, source, cache, samples):
    if system == "local":
        return train(source)
    with emulated_pfs(source) as pfs:
        if system == "pfs":
            epochs = train(pfs.path)
        else:
            with clairmount.clairfs(pfs.path, "--ram", cache) as mount:
                if system == "plan":
                    (mount.path / ".clairfs/plan").write_text(PLAN)
                epochs = train(mount.path)
                samples.add(f"{system} waited", mount.stat("stall_seconds"))
        samples.add(f"{system} bytes", pfs.counters()["bytes"])
    return epochs


def table_of(title, size, losses, samples):
    table = Table(title)
    for system, text in SYSTEMS.items():
        ratio = (samples.ratio(f"{system} total", "local total"), "the images' own directory")
        table.add(f"{text}: {EPOCHS} epochs", samples.median(f"{system} total"), "s", ratio=ratio)
        for epoch in range(EPOCHS):
            table.add(f"{text}: epoch {epoch + 1}", samples.median(f"{system} epoch {epoch}"), "samples/s")
        if f"{system} bytes" in samples.rounds:
            table.add(f"{text}: PFS bytes", samples.median(f"{system} bytes") / size, "S")
        if f"{system} waited" in samples.rounds:
            table.add(f"{text}: reads waited", samples.median(f"{system} waited"), "s", note="added up over the workers")
    table.add("different losses after the last epoch", len(losses) - 1, at_most=0, note=", ".join(sorted(losses)))
    return table


def main():
    given = benchlib.arguments(__doc__, "default: 5, with --quick 2")
    rounds = given.rounds or (2 if given.quick else 5)
    found = Findings(given)
    samples = found.samples
    if missing := what_is_missing():
        found.skip("PyTorch on clip art", f"not installed (apt-get install {missing})")
        return
    losses = set()
    with clairmount.tempdir() as tmp:
        source = tmp / "png"
        size = take_images(source, 6 if given.quick else 2)
        for round_ in range(rounds):
            for system, text in SYSTEMS.items():
                epochs = train_through(system, source, size * 6 // 10, samples)
                samples.add(f"{system} total", sum(seconds for _, seconds, _ in epochs))
                for epoch, (count, seconds, _) in enumerate(epochs):
                    samples.add(f"{system} epoch {epoch}", count / seconds)
                losses.add(epochs[-1][2])
                progress(f"round {round_ + 1} of {rounds}: {text}: {', '.join(f'{s:.1f}' for _, s, _ in epochs)} s")
    title = f"A small CNN on {epochs[0][0]:,} images, {size / 1e6:.0f} MB, batches of {BATCH}, {WORKERS} workers, RAM tier 0.6 S"
    series = {text: [samples.median(f"{s} epoch {e}") for e in range(EPOCHS)] for s, text in SYSTEMS.items()}
    chart = benchlib.lines(title, "epoch", "samples/s", [str(e + 1) for e in range(EPOCHS)], series)
    found.add(table_of(title, size, losses, samples), chart)


if __name__ == "__main__":
    main()
