#!/usr/bin/python3
"""Random training on random plans with random faults, for as long as it is told to.

    tests/soak.py [--seconds 300] [--session SECONDS] [--seed N] [--ranks 4] [--readers 2] [--build DIR]

Sessions follow each other: a mount with random options, or those of a job with so many ranks under mpiexec; training on
them that reads as its plan says (or not); faults meanwhile, in jobs also nodes that stand still and nodes that die; an
end of some kind. The NVMe directories outlive the sessions. Checked all the time:

  - every file has the source's bytes, or fails while a fault explains that; no read waits for ever
  - the daemons' memory and descriptors stay below what their options say, and do not grow from one training to the next
  - the daemons count the bytes that the source has seen them read; in sessions without faults they are near the least
    that caches of their size can read (of several nodes, in sessions where none took another for slow: there must be one)
  - no sanitizer has anything to say, where the build has one

One line a session, one JSON object at the end; the status is 0 only if nothing was found.
"""

import argparse
import collections
import errno
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS / "support/python"), str(TESTS / "mount"), str(TESTS / "plan")]

import clairmount  # noqa: E402  (after the path is set)
from soaking import (  # noqa: E402
    FAULTS,
    FAULTS_OF_JOBS,
    JOBS_TO_SHOW_GROWTH,
    PATIENCE,
    Dataset,
    Faults,
    Finding,
    Job,
    Nodes,
    damage,
)

SESSIONS = 8  # in the time given, fewer if a session would be too short to show growth
CALM_SESSIONS = 6  # at most, until nodes in one did not take each other for slow
JOB_SECONDS = 12  # at most, and no more than a tenth of the time given
# Why a node goes to the source though another is to serve it. The first three are no fault of the caching: nodes on a
# machine that stands still for seconds take each other for slow.
FALLBACKS = ("late", "failed", "corrupt", "not_here")
# Measured against least bytes in a calm session: how far fetches overlap depends on the machine. The worst of 48
# sessions of four nodes was at 1.02, the best of 8 without any tier at 1.15.
DRIFT = 1.10
# Where every rank reads the whole order, ranks of one node that drift apart come for what was dropped: 1.18 was seen of a
# sequential order with tiers of a quarter of it. A known shortfall.
DRIFT_OF_SAME = 1.4


class Soak:
    def __init__(self, options):
        self.options, self.rng = options, random.Random(options.seed)
        self.faults = FAULTS if options.ranks == 1 else FAULTS_OF_JOBS
        self.deadline = time.monotonic() + options.seconds
        self.totals = collections.Counter()
        self.errors = collections.Counter()
        self.findings, self.drifts, self.memory = [], [], []
        self.drifted = False
        self.job_seconds = min(JOB_SECONDS, options.seconds / 10)
        self.session_seconds = max(options.session or options.seconds / SESSIONS, JOBS_TO_SHOW_GROWTH * self.job_seconds)

    def run(self):
        with clairmount.tempdir() as place, clairmount.sanitizer_reports() as check_reports:
            dataset = Dataset(place / "src", self.rng)
            faults = Faults()
            while (time.monotonic() < self.deadline or self.owes_growth() or self.owes_drift()) and not self.findings:
                calm = self.totals["sessions"] % 4 == 0 or (time.monotonic() >= self.deadline and not self.owes_growth())
                self.totals["sessions"] += 1
                nodes = Nodes(dataset, place, self.rng, faults, self.options.ranks)
                try:
                    self.session(nodes, calm)
                    check_reports()
                except (Finding, AssertionError, TimeoutError, OSError, subprocess.SubprocessError, clairmount.MountError) as error:
                    self.findings.append(f"session {self.totals['sessions']}: {error!r}")
                for store in nodes.stores:
                    damage(store, self.rng)

    def owes_growth(self):
        """Whether growth has not been judged yet. However long the faults took, the soak goes on until it has been."""
        return not self.totals["growth_checks"] and not clairmount.sanitized()

    def owes_drift(self):
        """Likewise the bytes from the source, but for a machine so slow that it never will be."""
        return not self.totals["drift_checks"] and self.totals["calm"] < CALM_SESSIONS and not clairmount.sanitized()

    def session(self, nodes, calm):
        self.totals["calm"] += calm
        if calm:  # from cold, so that the bytes can be foretold
            for path in [path for store in nodes.stores for path in store.iterdir()]:
                path.unlink()
        begun = time.monotonic()
        with nodes.mounted(calm):
            jobs = 0
            end = min(self.deadline, begun + self.session_seconds)
            while time.monotonic() < end or jobs < (JOBS_TO_SHOW_GROWTH if self.owes_growth() else 1):
                job = self.job(nodes, calm)
                jobs += 1
                self.totals["jobs"] += 1
                if calm or self.findings:
                    break
            killed = self.options.ranks == 1 and not calm and not self.findings and self.rng.random() < 0.5
            stats = nodes.check()
            self.totals["growth_checks"] += sum(node.check_growth() for node in nodes.living())
            self.memory.append(max(resident for node in nodes.living() for resident, _ in node.usages))
            if calm:
                self.compare_bytes(nodes, job, stats)
            if killed:
                self.kill(nodes)
        print(f"session {self.totals['sessions']}: {'calm' if calm else 'faults'} {jobs} jobs {' '.join(nodes.words)}", flush=True)

    def job(self, nodes, calm):
        job = Job(nodes, self.rng, self.options.readers, calm)
        threads = job.run()
        end = time.monotonic() + (10 * PATIENCE if calm else self.job_seconds * self.rng.uniform(0.25, 1))
        while any(thread.is_alive() for thread in threads) and time.monotonic() < end and not job.findings:
            if job.hangs():
                job.findings.append(f"ranks hang: {job.hangs()}")
            elif not calm and self.rng.random() < 0.3:
                fault = self.rng.choice(self.faults)
                self.totals[fault.__name__] += 1
                fault(nodes, self.rng)
            nodes.check()
            time.sleep(0.2)
        job.stop.set()
        for thread in threads:
            thread.join(PATIENCE)
        if any(thread.is_alive() for thread in threads):
            job.findings.append("ranks hang")
        self.findings += job.findings
        self.errors += job.errors
        self.totals["files"] += job.read
        for node in nodes.living():
            node.note_usage()
        return job

    def compare_bytes(self, nodes, job, stats):
        seen = nodes.pfs.counters()["bytes"]
        counted = sum(of_node["pfs"]["bytes"] for of_node in stats)
        if counted != seen:
            raise Finding(f"the daemons count {counted} bytes, the source {seen}")
        dataset = nodes.dataset
        kept = min(dataset.bytes, dataset.bytes * nodes.capacity // dataset.pages)
        least = dataset.bytes + (job.epochs - 1) * (dataset.bytes - kept)
        self.drifts.append(round(seen / least, 4))
        why = {name: sum(of_node["peers"][name] for of_node in stats) for name in FALLBACKS} if len(stats) > 1 else {}
        limit = DRIFT if "sampler=torch.distributed" in job.text else DRIFT_OF_SAME
        judged = not any(why.get(name) for name in FALLBACKS[:3])
        self.totals["drift_checks"] += judged
        self.drifted |= judged and self.drifts[-1] > limit
        print(f"source read {seen / least:.3f} of the least, {job.text}, tiers {kept / dataset.bytes:.2f}", why, flush=True)

    def kill(self, nodes):
        """As a crash; what is on NVMe is warm for the next daemon."""
        self.totals["kills"] += 1
        job = Job(nodes, self.rng, self.options.readers, False)
        # An orderly end also leaves the empty mountpoint, and reads that were given up.
        ends = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.EINTR, errno.ECANCELED)
        with nodes.faults.explains(*ends):
            threads = job.run()
            time.sleep(self.rng.uniform(0.1, 1))
            nodes.all[0].mount.kill(self.rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            job.stop.set()
            for thread in threads:
                thread.join(PATIENCE)
                if thread.is_alive():
                    self.findings.append("a reader waits for a daemon that was killed")
        self.findings += job.findings
        self.errors += job.errors

    def verdict(self):
        if self.drifted:
            self.findings.append(f"bytes from the source, measured by foretold: {self.drifts}")
        if not self.findings and not self.totals["drift_checks"] and not clairmount.sanitized():
            self.findings.append("bytes from the source were never judged: in every calm session a node took another for slow")
        return {"seed": self.options.seed, "totals": self.totals, "errors": self.errors, "drifts": self.drifts,
                "memory_beside_tiers_mib": [resident >> 20 for resident in self.memory],
                "findings": self.findings}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--session", type=float, help="seconds of a session with faults; by default an eighth of all")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    parser.add_argument("--ranks", type=int, default=1, help="of a job under mpiexec, a mount each; 1: a single mount")
    parser.add_argument("--readers", type=int, default=2, help="training ranks a mount")
    parser.add_argument("--build", help="build directory; by default as all tests choose it")
    options = parser.parse_args()
    if options.build:
        os.environ["CLAIRFS_BUILD_DIR"] = options.build
    print(f"seed {options.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # takes down what is mounted
    soak = Soak(options)
    soak.run()
    print(json.dumps(soak.verdict(), indent=1))
    return 1 if soak.findings else 0


if __name__ == "__main__":
    sys.exit(main())
