#!/usr/bin/env python3
"""Starts the ranks of an MPI test on this machine and judges how they ended.

  ranks.py [--over shm|ucx|tcp|netns] [--lost R]... [--any-status] -n N PROGRAM ARGUMENT...

Each rank is expected to print "rank R: ok"; those given with --lost are expected not to. Whatever happens, no process
is left. `--over` chooses the network: shm is MPICH's own shared memory, as with a plain mpiexec on one machine; with ucx
and tcp each rank has a launcher of its own, as on machines of their own, and UCX moves the bytes, over what it likes
best or over TCP; with netns each is a host of its own as far as the network goes (netns_mpiexec.sh). Ends with 77 where
that cannot be had.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import time
import uuid

TCP_ONLY = ["-genv", "UCX_TLS", "tcp,self"]
NETNS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "netns_mpiexec.sh")
SKIPPED = 77  # of netns_mpiexec.sh, and what ctest takes for it

# hydra's launcher on a machine kills all ranks there when one dies of a signal, whatever -disable-auto-cleanup says:
# a shell in between that ends with a status hides it. It sends SIGUSR1 to the others, which would end the shell.
SHELL = ["sh", "-c", "trap '' USR1; \"$@\"; exit $?", "rank"]


def command(options):
    base = ["mpiexec", "-disable-auto-cleanup"]
    count = ["-n", str(options.n)]
    program = [options.program, *options.arguments]
    if options.over == "netns":
        return [NETNS, str(options.n), *program]
    if options.over == "shm":
        return base + count + SHELL + program
    hosts = ",".join(f"127.0.0.{i + 1}" for i in range(options.n))
    transports = TCP_ONLY if options.over == "tcp" else []
    return base + ["-launcher", "fork", "-hosts", hosts] + transports + count + program


def processes_of(mark):
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/environ", "rb") as environ:
                if mark in environ.read():
                    yield int(entry)
        except (OSError, ValueError):
            continue


def end(job, mark):
    """Kills what the job started, and at last the job itself: a script among it may have to clean up."""
    for _ in range(100):
        left = [pid for pid in processes_of(mark) if pid != job.pid]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not left and job.poll() is not None:
            return
        time.sleep(0.1)
    job.kill()
    job.wait()


def run(options):
    mark = f"CLAIRFS_RANKS={uuid.uuid4()}"
    environment = dict(os.environ, CLAIRFS_RANKS=mark.split("=")[1])
    job = subprocess.Popen(command(options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True)

    def give_up(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, give_up)
    signal.alarm(options.timeout)
    expected = set(range(options.n)) - set(options.lost)
    done = set()
    try:
        for line in job.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            done.update(int(rank) for rank in re.findall(r"rank (\d+): ok", line))
            if options.lost and done >= expected:
                break  # a lost rank may never end by itself
        if not options.lost:
            job.wait()
    except TimeoutError:
        print(f"ranks.py: gave up after {options.timeout} s")
        return 1
    finally:
        signal.alarm(0)
        end(job, mark.encode())
    if options.over == "netns" and job.returncode == SKIPPED:
        return SKIPPED
    if done != expected:
        print(f"ranks.py: ranks that ended well: {sorted(done)}, expected: {sorted(expected)}")
        return 1
    if not options.lost and job.returncode != 0 and not options.any_status:
        print(f"ranks.py: mpiexec ended with status {job.returncode}")
        return 1
    return 0


parser = argparse.ArgumentParser()
parser.add_argument("--over", choices=["shm", "ucx", "tcp", "netns"], default="shm")
parser.add_argument("--lost", type=int, action="append", default=[])
parser.add_argument("--any-status", action="store_true", help="mpiexec's status does not matter")
parser.add_argument("--timeout", type=int, default=240)
parser.add_argument("-n", type=int, required=True)
parser.add_argument("program")
parser.add_argument("arguments", nargs=argparse.REMAINDER)
sys.exit(run(parser.parse_args()))
