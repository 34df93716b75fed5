#!/usr/bin/env python3
"""Starts the ranks of an MPI test on this machine and judges how they ended.

  ranks.py [--over shm|ucx|tcp] [--lost R]... -n N PROGRAM ARGUMENT...

Each rank is expected to print "rank R: ok"; those given with --lost are expected not to. Whatever happens, no process
is left. `--over` chooses the network: shm is MPICH's own shared memory, as with a plain mpiexec on one machine; with ucx
and tcp each rank has a launcher of its own, as on machines of their own, and UCX moves the bytes, over what it likes
best or over TCP.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import uuid

# hydra's launcher on a machine kills all ranks there when one dies of a signal, whatever -disable-auto-cleanup says:
# a shell in between that ends with a status hides it. It sends SIGUSR1 to the others, which would end the shell.
SHELL = ["sh", "-c", "trap '' USR1; \"$@\"; exit $?", "rank"]


def command(options):
    base = ["mpiexec", "-disable-auto-cleanup"]
    count = ["-n", str(options.n)]
    program = [options.program, *options.arguments]
    if options.over == "shm":
        return base + count + SHELL + program
    hosts = ",".join(f"127.0.0.{i + 1}" for i in range(options.n))
    transports = ["-genv", "UCX_TLS", "tcp,self"] if options.over == "tcp" else []
    return base + ["-launcher", "fork", "-hosts", hosts] + transports + count + program


def processes_of(mark):
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/environ", "rb") as environ:
                if mark in environ.read():
                    yield int(entry)
        except (OSError, ValueError):
            continue


def end_all(mark):
    for pid in processes_of(mark):
        if pid != os.getpid():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def run(options):
    mark = f"CLAIRFS_RANKS={uuid.uuid4()}"
    environment = dict(os.environ, CLAIRFS_RANKS=mark.split("=")[1])
    job = subprocess.Popen(command(options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True)
    expected = set(range(options.n)) - set(options.lost)
    done = set()
    watchdog_fired = []

    def give_up(*_):
        watchdog_fired.append(True)
        end_all(mark.encode())

    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, give_up)
    signal.alarm(options.timeout)
    try:
        for line in job.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            done.update(int(rank) for rank in re.findall(r"rank (\d+): ok", line))
            if done >= expected and options.lost:
                break  # a lost rank may never end by itself
        if options.lost:
            end_all(mark.encode())
        status = job.wait()
    finally:
        end_all(mark.encode())
        job.wait()
    if watchdog_fired:
        print(f"ranks.py: gave up after {options.timeout} s")
        return 1
    if done != expected:
        print(f"ranks.py: ranks that ended well: {sorted(done)}, expected: {sorted(expected)}")
        return 1
    if not options.lost and status != 0:
        print(f"ranks.py: mpiexec ended with status {status}")
        return 1
    return 0


parser = argparse.ArgumentParser()
parser.add_argument("--over", choices=["shm", "ucx", "tcp"], default="shm")
parser.add_argument("--lost", type=int, action="append", default=[])
parser.add_argument("--timeout", type=int, default=240)
parser.add_argument("-n", type=int, required=True)
parser.add_argument("program")
parser.add_argument("arguments", nargs=argparse.REMAINDER)
sys.exit(run(parser.parse_args()))
