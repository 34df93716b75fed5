"""Scripts that use PyTorch, each in a fork of a process that has imported it: the import takes two to five seconds of the
processor, in many tests more than all the rest.

    words = [*warm_python.words(), "-c", code, argument]      # in place of sys.executable

The process that is started so stands for the job: it has its exit status, and the job is killed soon after it ends. The
job has the script's arguments, environment, folder and standard files; of the interpreter's options and variables it knows
-c, PYTHONPATH and PYTHONDONTWRITEBYTECODE. Each job is in a session of its own, so the mount takes it for a program of its
own though the server has forked it (plan/inference/readers/process_tree.cc). /proc shows the server as the parent of all
jobs, and its environment as theirs: a job whose environment the mount is to read starts the real sys.executable.
"""

import atexit
import contextlib
import functools
import json
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types

START_SECONDS = 120  # a cold import on a busy machine takes ten


@functools.cache
def words():
    """What stands before a script and its arguments. Starts the server, which ends with this process."""
    ours, theirs = socket.socketpair()
    path = f"{tempfile.mkdtemp(prefix='warm-')}/socket"
    subprocess.Popen([sys.executable, __file__, "serve", path], stdin=theirs, stdout=subprocess.DEVNULL)
    theirs.close()
    ours.settimeout(START_SECONDS)
    assert ours.recv(1) == b"!", "the server has not started"
    return Words([sys.executable, __file__, "run", path], ours)


class Words(list):
    def __init__(self, words, connection):
        super().__init__(words)
        self.connection = connection  # the server ends when it is closed


def run(path, script):
    """Asks the server for a job, and ends as it does."""
    request = os.memfd_create("job")
    with os.fdopen(request, "w", closefd=False) as file:
        json.dump({"script": script, "environment": dict(os.environ), "folder": os.getcwd()}, file)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"?"], [request, 0, 1, 2])
        status = int(connection.recv(100) or 1)
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.exit(status)


class Server:
    """Forks jobs, tells how they ended, and kills those that nobody waits for."""

    def __init__(self, path):
        self.path = path
        self.selector = selectors.DefaultSelector()
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(path)
        self.listening.listen(100)
        self.selector.register(self.listening, selectors.EVENT_READ, self.accept)
        self.selector.register(0, selectors.EVENT_READ, self.end)
        self.jobs = set()

    def serve(self):
        """Returns in each job, with its request and standard files; else it never does."""
        os.write(0, b"!")
        while True:
            event, _ = self.selector.select()[0]  # of several the first may unregister another
            if fds := event.data():
                return fds

    def end(self):
        for pid in self.jobs:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(os.path.dirname(self.path))
        os._exit(0)

    def accept(self):
        connection, _ = self.listening.accept()
        _, fds, _, _ = socket.recv_fds(connection, 1, 4)
        if len(fds) < 4:  # it was killed meanwhile
            return connection.close()
        if (pid := os.fork()) == 0:
            for key in list(self.selector.get_map().values()):
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
                elif key.fd != 0:
                    os.close(key.fd)
            return fds
        for fd in fds:
            os.close(fd)
        self.jobs.add(pid)
        ended = os.pidfd_open(pid)
        self.selector.register(connection, selectors.EVENT_READ, functools.partial(self.give_up, connection, pid))
        self.selector.register(ended, selectors.EVENT_READ, functools.partial(self.tell, connection, pid, ended))

    def give_up(self, connection, pid):
        self.selector.unregister(connection)
        os.kill(pid, signal.SIGKILL)

    def tell(self, connection, pid, ended):
        _, status = os.waitpid(pid, 0)
        self.jobs.remove(pid)
        self.selector.unregister(ended)
        os.close(ended)
        if connection in self.selector.get_map():
            self.selector.unregister(connection)
            with contextlib.suppress(OSError):  # it was killed meanwhile
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        connection.close()


def become(request, *standard):
    """Takes over what the interpreter would have been given. Returns the script's code, and the module that it is."""
    os.setsid()
    with open(request) as file:
        file.seek(0)
        job = json.load(file)
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None
    for seed in (random.seed, numpy.random.seed, torch.seed):
        seed()
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    first, *rest = job["script"]
    if first == "-c":
        sys.argv, folder, (code, *_) = ["-c", *rest[1:]], "", rest
    else:
        sys.argv, folder, main.__file__ = [first, *rest], os.path.dirname(first), first
        with open(first) as file:
            code = file.read()
    sys.path[:1] = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    return compile(code, getattr(main, "__file__", "<string>"), "exec"), main


def status_of(code, main):
    try:
        exec(code, main.__dict__)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def serve(path):
    status = status_of(*become(*Server(path).serve()))
    # As the interpreter ends, but for taking apart what was imported, which takes a second.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    what, where, *script = sys.argv[1:]
    if what == "run":
        run(where, script)
    import numpy
    import torch.utils.data.distributed

    with contextlib.suppress(ImportError):  # not all jobs need it
        import torchvision.datasets

    serve(where)
