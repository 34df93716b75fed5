"""The .deb that `cmake --build BUILD --target package` makes, the completions, and the manuals."""

import gzip
import os
import pathlib
import re
import shutil
import subprocess

import clairmount
import pytest
from clairmount import binary, build_dir, make_tree, sanitized

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root only")]

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ["usr/bin/clairfs", "usr/sbin/mount.clairfs", "usr/sbin/mount.fuse.clairfs"]
HELPER = "usr/libexec/clairfs/clairfs-hdf5-index"
MANUALS = ["usr/share/man/man1/clairfs.1.gz", "usr/share/man/man7/clairfs-troubleshooting.7.gz", "usr/share/man/man8/mount.clairfs.8.gz"]
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/clairfs",
    "zsh": "usr/share/zsh/vendor-completions/_clairfs",
    "fish": "usr/share/fish/vendor_completions.d/clairfs.fish",
}
PYTHON = "usr/lib/python3/dist-packages/clairfs.py"
DOCUMENTS = [
    f"usr/share/doc/clairfs/{name}"
    for name in ("README.md", "copyright", "changelog.gz", "changelog.Debian.gz", "examples/README.md", "examples/fstab", "examples/slurm.sbatch")
] + [f"usr/share/doc/clairfs/examples/systemd/{name}" for name in ("clairfs-imagenet.service", "mnt-imagenet.mount")]


def run(*command, **options):
    """What it prints; fails with what it says."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=120, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def deb():
    with clairmount.tempdir() as tmp:
        run("cpack", "-G", "DEB", "-B", tmp, cwd=build_dir())
        (package,) = tmp.glob("clairfs_*.deb")
        yield package


@pytest.fixture(scope="module")
def root(deb):
    """The package's files, unpacked."""
    with clairmount.tempdir() as tmp:
        run("dpkg-deb", "-x", deb, tmp)
        yield tmp


def test_python_module(root):
    path = root / PYTHON
    code = "import clairfs, sys; print(clairfs.__file__, clairfs.status('/'), 'torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(path.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    assert run("/usr/bin/python3", "-c", code, env=environment).split() == [str(path), "None", "False"]


def field(deb, name):
    return run("dpkg-deb", "-f", deb, name).strip()


def commands(*words):
    """This command and those below it, as lists of words."""
    found = [list(words)]
    listed = re.split(r"^subcommands:\n", run(binary(), *words, "--help"), flags=re.IGNORECASE | re.MULTILINE)
    for name in re.findall(r"^  (\S+) {2,}", listed[1], re.MULTILINE) if len(listed) > 1 else []:
        found += commands(*words, name)
    return found


def options(words):
    """Those that the help of a command shows."""
    lines = re.findall(r"^ +(-.*?)(?:  .*)?$", run(binary(), *words, "--help"), re.MULTILINE)
    return {name for line in lines for name in re.findall(r"(?<![^\s,])--?[a-z][a-z-]*", line)}


def test_content(deb):
    lines = [line.split(None, 5) for line in run("dpkg-deb", "-c", deb).splitlines()]
    modes = {line[5].split(" -> ")[0].removeprefix("./"): line[0] for line in lines}
    assert {line[1] for line in lines} == {"root/root"}
    assert not [path for path in modes if path and not path.startswith("usr/")]
    for path in [PROGRAMS[0], HELPER, *MANUALS, *COMPLETIONS.values(), *DOCUMENTS, PYTHON]:
        assert modes[path] == ("-rwxr-xr-x" if path in [*PROGRAMS, HELPER] else "-rw-r--r--"), path
    assert [line[5] for line in lines if line[0].startswith("l")] == [
        "./usr/sbin/mount.clairfs -> ../bin/clairfs",
        "./usr/sbin/mount.fuse.clairfs -> ../bin/clairfs",
        "./usr/share/man/man8/mount.fuse.clairfs.8.gz -> mount.clairfs.8.gz",
    ]
    assert all(mode == "drwxr-xr-x" for path, mode in modes.items() if path.endswith("/"))


def test_binary_is_stripped_and_needs_no_mpi(root):
    program = root / PROGRAMS[0]
    assert not re.search(r"\.(debug_info|symtab)", run("readelf", "-S", "-W", program))
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", program))
    assert any(name.startswith("libfuse3") for name in needed)
    assert not [name for name in needed if re.match(r"lib(mpi|uc[pst]|hwloc)", name)]


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_the_commit_is_that_of_the_work_tree_and_of_no_other(tmp_path):
    """A file that the build compiles. It is empty in a tarball, and written anew only where it changes."""
    tree, source = tmp_path / "tree", tmp_path / "commit.cc"
    tree.mkdir()

    def commit(of=tree):
        run("cmake", "-D", f"SOURCE={of}", "-D", f"OUTPUT={source}", "-P", ROOT / "mount-helper/commit.cmake")
        return re.search('return "(.*)";', source.read_text())[1]

    def git(*words):
        return run("git", "-C", tree, "-c", "user.name=t", "-c", "user.email=t@example.org", *words).strip()

    assert commit() == ""
    git("init", "-q")
    (tree / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "one")
    assert commit() == git("rev-parse", "--short=12", "HEAD")
    os.utime(source, (1, 1))
    commit()
    assert source.stat().st_mtime == 1
    (tree / "file").write_text("2")
    assert commit() == git("rev-parse", "--short=12", "HEAD") + "-dirty"
    (tree / "below").mkdir()
    assert commit(of=tree / "below") == ""  # a tarball in somebody's repository


def test_the_module_file_names_folders_of_an_installation(root, tmp):
    """Its commands, made to print what they would set, in the language that it is written in."""
    words = ("module-whatis", "conflict", "prepend-path", "setenv")
    script = "".join(f"proc {word} args {{ puts [concat {word} $args] }}\n" for word in words) + "source [lindex $argv 0]\n"
    (tmp / "print.tcl").write_text(script)
    module = root / "usr/share/doc/clairfs/examples/modulefile"
    assert module.read_text().startswith("#%Module1.0\n")
    said = [line.split() for line in run("tclsh", tmp / "print.tcl", module).splitlines()]
    paths = {words[1]: words[2].removeprefix("/opt/clairfs") for words in said if words[0] == "prepend-path"}
    for variable, file in (("PATH", "clairfs"), ("MANPATH", "man1/clairfs.1.gz"), ("PYTHONPATH", "clairfs.py")):
        assert (root / "usr" / paths[variable].lstrip("/") / file).is_file(), variable


def test_control(deb, root):
    version = run(binary(), "--version").split()[1]
    assert field(deb, "Version") == f"{version}-1"
    assert field(deb, "Architecture") == run("dpkg", "--print-architecture").strip()
    depends = field(deb, "Depends").split(", ")
    assert "fuse3" in depends and any(re.match(r"libfuse3-\d", name) for name in depends)
    assert not [name for name in depends if re.match("libmpich|libuc|mpich", name)]
    assert field(deb, "Suggests") == "mpich"
    changelog = gzip.decompress((root / "usr/share/doc/clairfs/changelog.Debian.gz").read_bytes()).decode()
    assert changelog.startswith(f"clairfs ({version}-1) ")


def test_lintian_finds_no_error(deb):
    if not shutil.which("lintian"):
        pytest.skip("no lintian: apt-get install lintian")
    if sanitized():
        pytest.skip("a build with a sanitizer has flags that lintian refuses")
    done = subprocess.run(["lintian", "--allow-root", deb], capture_output=True, text=True, timeout=250, check=False)
    assert not re.findall("^E:.*", done.stdout, re.MULTILINE), done.stdout
    assert done.returncode == 0, done.stderr


def files_below(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if not str(file).startswith(f"{path}/var/lib/dpkg"))


def test_what_is_installed_mounts_and_goes_without_a_trace(deb, tmp):
    """What a package cannot find in an empty root (the libraries of this machine serve) is not asked for."""
    installed, source, mount = tmp / "root", tmp / "src", tmp / "mnt"
    for folder in (installed / "var/lib/dpkg/info", installed / "var/lib/dpkg/updates", mount):
        folder.mkdir(parents=True)
    (installed / "var/lib/dpkg/status").touch()
    before = files_below(installed)
    dpkg = ["dpkg", f"--root={installed}", "--force-depends", "--force-script-chrootless", "--log=/dev/null"]
    run(*dpkg, "-i", deb)
    content = make_tree(source, {"a/one": 100_000, "b/two": 10})
    helper = installed / "usr/sbin/mount.clairfs"
    run(helper, source, mount, "-o", f"rw,catalog_dir={tmp}/catalog")
    assert {path: (mount / path).read_bytes() for path in content} == content
    run(installed / "usr/bin/clairfs", "umount", mount)
    assert run(*dpkg, "--verify", "clairfs") == ""
    (installed / "var/cache/clairfs/log").mkdir(parents=True)
    run(*dpkg, "-r", "clairfs")
    assert (installed / "var/cache/clairfs/log").exists()  # as Debian has it, until the purge
    run(*dpkg, "-P", "clairfs")
    assert set(files_below(installed)) - set(before) <= {"var/cache"}


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_completions_parse_and_name_everything(root, shell):
    path = root / COMPLETIONS[shell]
    if shell == "bash" or shutil.which(shell):
        run(shell, "-n", path)
    text = path.read_text()
    assert text == run(binary(), "completion", shell)
    for words in commands():
        assert not words or words[-1] in text
        for option in options(words):
            named = option if shell != "fish" else ("-l " if option.startswith("--") else "-s ") + option.lstrip("-")
            assert re.search(rf"(?<![\w-]){re.escape(named)}(?![\w-])", text), (words, option)
    for hidden in ("guard", "man-page"):
        assert not re.search(rf"(?<![\w-]){hidden}(?![\w-])", text)


def complete_bash(root, cwd, *words):
    script = f"source '{root / COMPLETIONS['bash']}'; shift 0; COMP_WORDS=(clairfs \"$@\"); COMP_CWORD=$#; _clairfs"
    return set(run("bash", "-c", script + '; printf "%s\\n" "${COMPREPLY[@]}"', "bash", *words, cwd=cwd).split())


def complete_fish(root, cwd, *words):
    line = "clairfs " + " ".join(words).replace(" = ", "=")
    script = f"source {root / COMPLETIONS['fish']}; complete -C '{line}'"
    environment = {**os.environ, "HOME": str(cwd)}
    return {found.split("\t")[0].rstrip("/") for found in run("fish", "-c", script, cwd=cwd, env=environment).splitlines()}


@pytest.mark.parametrize("complete", [complete_bash, complete_fish])
def test_completions_complete(root, tmp, complete):
    if complete is complete_fish and not shutil.which("fish"):
        pytest.skip("no fish: apt-get install fish")
    (tmp / "folder").mkdir()
    (tmp / "file.conf").touch()
    assert {"mount", "umount", "plan", "top"} <= complete(root, tmp, "")
    assert complete(root, tmp, "um") == {"umount"}
    assert complete(root, tmp, "mount", "f") == {"folder"}
    assert complete(root, tmp, "mount", "--io", "") == {"auto", "uring", "threads"}
    assert {word.removeprefix("--io=") for word in complete(root, tmp, "mount", "--io", "=", "u")} == {"uring"}
    assert {"folder", "file.conf"} <= complete(root, tmp, "mount", "--config", "f")
    assert complete(root, tmp, "mount", "--ram", "f") == set()
    assert complete(root, tmp, "mount", "--peer") == {"--peers"}
    assert complete(root, tmp, "plan", "sho") == {"show"}
    assert {"show", "shuffle=", "shuffle_after_epoch="} <= complete(root, tmp, "plan", "sh")
    assert complete(root, tmp, "plan", "folder", "see") == {"seed="}
    assert {"--next", "--name"} <= complete(root, tmp, "plan", "show", "--n")
    assert "--epoch" not in complete(root, tmp, "plan", "show", "--")


@pytest.mark.parametrize("path", MANUALS)
def test_manuals_render_without_warnings(root, path):
    page = gzip.decompress((root / path).read_bytes())
    for device in ("utf8", "ascii"):
        done = subprocess.run(["groff", "-man", "-t", "-ww", "-rCHECKSTYLE=1", f"-T{device}", "-Z"], input=page, capture_output=True, check=True)
        assert done.stderr == b""
