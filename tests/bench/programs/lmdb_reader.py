#!/usr/bin/python3
"""One of several processes that read an LMDB together with py-lmdb, as Caffe and LMDBIO do: by turns, a block each.

    lmdb_reader.py '{"path": FILE, "records": N, "rank": R, "world": W, "block": B, "readahead": BOOL, "begin": S,
                    "order": FILE}'

The keys are decimal numbers of eight digits; `order`, if not null, has those to read, one a line. It waits until CLOCK_MONOTONIC is S seconds. Prints one line of JSON: begin and
seconds, records, bytes, sum (the same for the same bytes, whoever reads which), major faults and voluntary context switches.
"""

import json
import pathlib
import resource
import sys
import time
import zlib

import lmdb


def main():
    job = json.loads(sys.argv[1])
    if job["order"]:
        mine = [int(line) for line in pathlib.Path(job["order"]).read_text().split()]
    else:
        mine = [i for i in range(job["records"]) if i // job["block"] % job["world"] == job["rank"]]
    time.sleep(max(0, job["begin"] - time.monotonic()))
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    size = checksum = 0
    with lmdb.open(job["path"], subdir=False, readonly=True, lock=False, readahead=job["readahead"], meminit=False) as env:
        with env.begin() as txn:
            for i in mine:
                value = txn.get(b"%08d" % i)
                size += len(value)
                checksum += zlib.adler32(value)
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {"begin": begin, "seconds": time.monotonic() - begin, "records": len(mine), "bytes": size, "sum": checksum}
    print(json.dumps({**found, "faults": used.ru_majflt - before.ru_majflt, "switches": used.ru_nvcsw - before.ru_nvcsw}))


if __name__ == "__main__":
    main()
