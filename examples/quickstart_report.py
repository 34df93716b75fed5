#!/usr/bin/python3
"""Shows what the cache did while another program read:

quickstart_report.py MOUNT DATASET_BYTES [--save FILE] < its output
quickstart_report.py --compare FILE FILE

Passes lines on. After each line "NAME: N samples in S s..." it adds where the bytes came from since the one before,
from MOUNT/.clairfs/stats.json. DATASET_BYTES is what one pass over the dataset reads; what of it no READ request
asked the daemon for came from the kernel's page cache. The figures saved of two runs are shown side by side.
"""

import json
import os
import re
import sys

PASS = re.compile(r"(?P<name>[^:]+): (?P<samples>\d+) samples in (?P<seconds>[\d.]+) s")
TIERS = {"ram": "RAM", "nvme": "NVMe", "pfs": "PFS"}


def snapshot(mount):
    with open(os.path.join(mount, ".clairfs/stats.json"), encoding="utf-8") as file:
        stats = json.load(file)
    counts = {tier: stats["bytes"][tier] for tier in TIERS}
    return {
        **counts,
        "source": stats["pfs"]["bytes"],
        "requests": stats["fuse"]["requests"]["read"],
        "stall": stats["stall_seconds"],
    }


def compare(paths):
    """One line a pass, one column a run; the file's name is the run's."""
    names = [os.path.basename(path).removesuffix(".json") for path in paths]
    runs = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            runs.append(json.load(file))
    print(f"{'':10}" + "".join(f"{name:>44}" for name in names))
    for passes in zip(*runs):
        print(f"{passes[0]['name']:10}" + "".join(
            f"{p['seconds']:8.2f} s {p['samples'] / p['seconds']:6.0f}/s  waited {p['stall']:6.1f} s  "
            f"{p['source'] / 2**20:4.0f} MiB"
            for p in passes
        ))
    totals = [sum(p["seconds"] for p in run) for run in runs]
    print(f"{'in all':10}" + "".join(f"{total:8.2f} s{'':34}" for total in totals).rstrip())
    print(f"The second run took {totals[1] / totals[0]:.2f} times as long as the first. 'waited' adds up the reads that were")
    print("not ready, over all workers; 'MiB' were read from the slow filesystem.")


def main():
    if sys.argv[1] == "--compare":
        return compare(sys.argv[2:])
    mount, dataset_bytes = sys.argv[1], int(sys.argv[2])
    save = sys.argv[4] if len(sys.argv) > 4 and sys.argv[3] == "--save" else None
    passes = []
    before = snapshot(mount)
    for line in sys.stdin:
        print(line, end="", flush=True)
        found = PASS.match(line)
        if not found:
            continue
        now = snapshot(mount)
        delta = {key: now[key] - before[key] for key in now}
        before = now
        shares = {name: delta[tier] / dataset_bytes for tier, name in TIERS.items()}
        cached = max(0.0, 1 - sum(shares.values()))
        seconds = max(float(found["seconds"]), 0.01)
        passes.append({"name": found["name"], "samples": int(found["samples"]), "seconds": seconds, **delta})
        print(
            f"    {int(found['samples']) / seconds:,.0f} samples/s; bytes from page cache {cached:.1%}, "
            + ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
            + f"; read from the source: {delta['source'] / 2**20:.1f} MiB; READ requests: {delta['requests']:,}",
            flush=True,
        )
    if save:
        with open(save, "w", encoding="utf-8") as file:
            json.dump(passes, file)


if __name__ == "__main__":
    main()
