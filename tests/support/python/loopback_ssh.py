"""Several machines on one, as far as mpiexec knows: 127.0.0.2, .3, ... behind an sshd of the test's own.

    with loopback_ssh(tmp, 3) as launch:
        with clairjob(source, 3, launch=launch, shell=[]) as job:
            ...

hydra's ssh launcher logs in at each address, so each rank has a machine of its own: what kills one does not kill the
others, as it does where several ranks share one. The sshd has a free port, a key and a list of users for this alone.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess

import pytest
from clairmount import STOP_SECONDS, wait_until
from meetingjob import free_port

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))
RUN_SSHD = pathlib.Path("/run/sshd")  # where the sshd of root locks its children up; made by a boot or by the service


def missing():
    """Why there can be no such machines; empty if they can."""
    for program, path in (("sshd", SSHD), ("ssh", shutil.which("ssh")), ("ssh-keygen", shutil.which("ssh-keygen"))):
        if path is None:
            return f"there is no {program} (openssh-server, openssh-client)"
    return ""


def make_key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, stdin=subprocess.DEVNULL)


def write_config(tmp, addresses, port):
    shutil.copy(tmp / "key.pub", tmp / "authorized_keys")
    lines = [
        *(f"ListenAddress {address}:{port}" for address in addresses),
        f"HostKey {tmp}/host_key",
        f"AuthorizedKeysFile {tmp}/authorized_keys",
        "StrictModes no",  # the temporary folder may lie below one that others write to
        "PidFile none",
        "PasswordAuthentication no",
        "PermitRootLogin prohibit-password",
        f"UsePAM {'yes' if os.geteuid() == 0 else 'no'}",  # without it a locked password keeps keys out, too
        "MaxStartups 100",
    ]
    (tmp / "sshd_config").write_text("\n".join(lines) + "\n")


def write_client(tmp, port):
    """What mpiexec calls as ssh."""
    client = tmp / "ssh"
    client.write_text(
        "#!/bin/sh\n"
        f"exec ssh -F none -p {port} -i {tmp}/key -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no "
        f'-o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"\n'
    )
    client.chmod(0o700)
    return client


@contextlib.contextmanager
def lockup():
    made = os.geteuid() == 0 and not RUN_SSHD.exists()
    if made:
        RUN_SSHD.mkdir(mode=0o755)
    try:
        yield
    finally:
        if made:
            RUN_SSHD.rmdir()


@contextlib.contextmanager
def loopback_ssh(tmp, machines):
    """Yields the words that launch one rank on each of so many machines. Skips the test where that cannot be."""
    if absent := missing():
        pytest.skip(absent)
    tmp = tmp / "sshd"
    tmp.mkdir(mode=0o700)
    addresses = [f"127.0.0.{2 + machine}" for machine in range(machines)]
    port = free_port(addresses[0])
    make_key(tmp / "host_key")
    make_key(tmp / "key")
    write_config(tmp, addresses, port)
    client = write_client(tmp, port)
    with lockup(), open(tmp / "log", "wb") as log:
        sshd = subprocess.Popen([SSHD, "-D", "-e", "-f", tmp / "sshd_config"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            answers = lambda address: subprocess.run([client, address, "true"], stderr=log, check=False).returncode == 0  # noqa: E731
            try:
                wait_until(lambda: sshd.poll() is not None or answers(addresses[0]), "sshd answers", 20)
            except TimeoutError:
                pytest.skip("nobody can log in: " + (tmp / "log").read_text(errors="replace")[-500:])
            if sshd.poll() is not None:
                pytest.skip("sshd does not start: " + (tmp / "log").read_text(errors="replace")[-500:])
            yield [
                *("mpiexec", "-disable-auto-cleanup", "-launcher", "ssh", "-launcher-exec", str(client)),
                *("-localhost", "127.0.0.1", "-hosts", ",".join(addresses), "-ppn", "1"),
            ]
        finally:
            sshd.terminate()
            sshd.wait(STOP_SECONDS)
