#!/usr/bin/python3
"""Shows what the cache did while another program read: quickstart_report.py MOUNT DATASET_BYTES < its output

Passes lines on. After each line "NAME: N samples in S s..." it adds where the bytes came from since the one before,
from MOUNT/.clairfs/stats.json. DATASET_BYTES is what one pass over the dataset reads; what of it no READ request
asked the daemon for came from the kernel's page cache.
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
    return {**counts, "source": stats["pfs"]["bytes"], "requests": stats["fuse"]["requests"]["read"]}


def main():
    mount, dataset_bytes = sys.argv[1], int(sys.argv[2])
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
        speed = int(found["samples"]) / max(float(found["seconds"]), 0.01)
        print(
            f"    {speed:,.0f} samples/s; bytes from page cache {cached:.1%}, "
            + ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
            + f"; read from the source: {delta['source'] / 2**20:.1f} MiB; READ requests: {delta['requests']:,}",
            flush=True,
        )


if __name__ == "__main__":
    main()
