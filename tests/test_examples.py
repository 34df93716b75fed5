"""What examples/ and the manuals tell people to type exists; the YAML files have what mounting needs."""

import functools
import os
import pathlib
import re
import shlex
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest
import yaml
from clairmount import REPO, binary

EXAMPLES = REPO / "examples"
MANUALS = REPO / "mount-helper/man"
TYPED = [path for path in EXAMPLES.rglob("*") if path.suffix in (".sh", ".sbatch", ".md", ".yaml", ".service")]


@functools.cache
def help_of(*command):
    return subprocess.run([binary(), *command, "--help"], capture_output=True, text=True, check=True).stdout


COMMANDS = set(re.findall(r"^  ([a-z]+)", help_of().lower().split("commands:")[1], re.M)) | {"help", "version"}


def text_of(path):
    text = path.read_text()
    if path.suffix == ".in":
        text = re.sub(r"^\.(BR?|I|nf|fi|TP)\b ?", "", text, flags=re.M).replace("\\-", "-").replace('"', "")
    if path.suffix == ".yaml":
        text = re.sub(r'[\[\],"]', " ", text)
    return re.sub(r"\\\n\s*", " ", text)


def typed_in(path):
    """(command, options) of each line that calls clairfs, up to where it ends or another command begins."""
    for words in re.findall(r"\bclairfs +([a-z]+\b(?: [^\n#;&|`]*)?)", text_of(path)):
        command, *rest = words.split()
        if command in COMMANDS:
            inner = [rest[0]] if command in ("plan", "cache") and rest and re.fullmatch("[a-z]+", rest[0]) else []
            yield (command, *inner), re.findall(r"(?<!\S)(--[a-z][a-z-]*)", " ".join(rest))


@pytest.mark.parametrize("path", [*TYPED, *MANUALS.iterdir()], ids=lambda path: path.name)
def test_commands_have_the_options_that_are_typed(path):
    for command, options in typed_in(path):
        for option in options:
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", help_of(*command)), f"{command} {option}"


def test_what_is_typed_is_found():
    found = [(command, option) for path in TYPED for command, options in typed_in(path) for option in options]
    assert (("mount",), "--job-secret") in found and (("mount",), "--allow-other") in found and len(found) > 15


@pytest.mark.parametrize("path", [*EXAMPLES.glob("*.sh"), *EXAMPLES.glob("*.sbatch")], ids=lambda path: path.name)
def test_scripts_parse(path):
    subprocess.run(["bash", "-n", path], check=True)


STAND_INS = """
clairfs() { printf '%s\\n' "$*" >&2; }
/usr/bin/python3() { :; }
report() { :; }
step() { :; }
clairfs=clairfs pfs=/pfs mnt=$1 tmp=$1 epochs=1 dataset_bytes=1
"""


def test_the_quickstart_compares_with_a_mount_that_finds_no_plan_either(tmp_path):
    """Else both of its runs would follow the same plan, the one that was found and the one that was given."""
    text = (EXAMPLES / "quickstart.sh").read_text()
    run = re.search(r"^run\(\) \{$.*?^\}$", text, re.M | re.S)[0]
    (tmp_path / ".clairfs").mkdir()
    mounts = []
    for plan in ("", "seed=1"):
        script = f"set -euo pipefail\n{STAND_INS}\n{run}\nrun NAME {plan}\n"
        done = subprocess.run(["bash", "-c", script, "bash", tmp_path], capture_output=True, text=True, check=True)
        mounts += [line for line in done.stderr.splitlines() if line.startswith("mount ")]
        assert ("--infer off" in done.stdout) == (not plan)  # and says so
    assert ["--infer off" in mount for mount in mounts] == [True, False]


def run_torchrun_example(tmp_path, refused="", **environment):
    """The commands that it runs, with stand-ins, of which clairfs may refuse one; and whether it succeeds. Without USER, as in
    most containers."""
    (tmp_path / "called").write_text("")
    for name in ("clairfs", "torchrun"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $1" >>{tmp_path}/called\n[ "$1" != "$REFUSED" ]\n')
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "MOUNT": str(tmp_path / "mnt"), "REFUSED": refused}
    done = subprocess.run(["bash", EXAMPLES / "torchrun.sh", "0", "1", "node0"], env=env | environment, check=False)
    return (tmp_path / "called").read_text().splitlines(), done.returncode == 0


def test_the_torchrun_example_unmounts_what_it_has_mounted(tmp_path):
    assert run_torchrun_example(tmp_path) == (["clairfs mount", "clairfs plan", "torchrun --nnodes", "clairfs umount"], True)
    assert not (tmp_path / "mnt").exists()


def test_the_torchrun_example_leaves_the_mount_of_another_job(tmp_path):
    """Over which it cannot mount."""
    assert run_torchrun_example(tmp_path, "mount") == (["clairfs mount"], False)


def test_the_torchrun_example_mounts_on_its_own_directory_only(tmp_path):
    """In /tmp somebody else may have put a link there."""
    where = {"MOUNT": "", "USER": f"clairfs-test-{os.getpid()}"}
    assert run_torchrun_example(tmp_path, **where)[1]
    link = pathlib.Path(f"/tmp/{where['USER']}-clairfs")
    link.symlink_to(tmp_path)
    try:
        assert run_torchrun_example(tmp_path, **where) == ([], False)
    finally:
        link.unlink()


def test_the_index_names_all_examples():
    index = (EXAMPLES / "README.md").read_text()
    named = re.findall(r"`([\w./-]+)`", index)
    for path in EXAMPLES.iterdir():
        assert path.name.startswith("quickstart_") or path.name == "README.md" or path.name in index, path
    assert not [name for name in named if re.search(r"[./]", name) and not name.startswith("mount-helper/") and not (EXAMPLES / name).exists()]


def pods_of(name):
    """{kind: the pod's specification} of a YAML file; None for kinds without pods."""
    objects = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    for each in objects:
        assert each["apiVersion"] and each["metadata"]["name"]
    return {each["kind"]: each["spec"].get("template", {}).get("spec") for each in objects}


def assert_a_pod(pod):
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for container in pod["containers"]:
        for mount in container.get("volumeMounts", []):
            assert mount["name"] in volumes and mount["mountPath"].startswith("/")
            if mount.get("mountPropagation") == "Bidirectional":  # else the API refuses the pod
                assert container["securityContext"]["privileged"] is True
        for script in container.get("args", []):
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)
            if "clairfs mount" in script:  # /dev/fuse and mount(2)
                assert container["securityContext"]["privileged"] is True
    return volumes


def test_kubernetes_job_with_mounts_of_its_own():
    pods = pods_of("kubernetes.yaml")
    assert set(pods) == {"Service", "Job"}
    assert_a_pod(pods["Job"])
    assert pods["Job"]["subdomain"] == "train"  # the name of the Service, which names the pods


def test_kubernetes_mount_of_a_node():
    """What the one mounts below a folder of the host the other sees there, also if it comes later."""
    pods = pods_of("kubernetes-daemonset.yaml")
    assert set(pods) == {"DaemonSet", "Job"}
    seen = {}
    for kind, propagation in (("DaemonSet", "Bidirectional"), ("Job", "HostToContainer")):
        volumes = assert_a_pod(pods[kind])
        (container,) = pods[kind]["containers"]
        (shared,) = [mount for mount in container["volumeMounts"] if mount.get("mountPropagation")]
        assert shared["mountPropagation"] == propagation
        seen[kind] = (volumes[shared["name"]]["hostPath"]["path"], shared["mountPath"])
        words = shlex.split(" ".join(container.get("args", []) + container["command"]), comments=True)
        assert any(word.startswith(shared["mountPath"] + "/") for word in words)  # below it, not on it
    assert seen["DaemonSet"] == seen["Job"]
    assert pods["DaemonSet"]["hostPID"] is True
    source = pathlib.PurePath("/pfs/imagenet")
    (pfs,) = [mount for mount in pods["DaemonSet"]["containers"][0]["volumeMounts"] if mount["mountPath"] == str(source)]
    assert pfs["readOnly"] is True


@pytest.mark.parametrize("path", (EXAMPLES / "systemd").glob("*.service"), ids=lambda path: path.name)
def test_services_are_in_the_foreground_and_say_when_they_are_ready(path):
    """Of a mount in the background systemd would have to guess which of its two processes is the service."""
    lines = path.read_text().splitlines()
    assert "Type=notify" in lines
    assert [line for line in lines if line.startswith("ExecStart=/usr/bin/clairfs mount -f ")]


def test_systemd_waits_for_the_source_and_for_the_scan():
    """Else it mounts before the PFS is there, or gives up after 90 seconds; and a mount unit that it takes for local comes
    before the network, but the PFS after it."""
    lines = [line.split()[3].split(",") for line in (EXAMPLES / "fstab").read_text().splitlines() if line.startswith("/")]
    by_systemd = [{option.partition("=")[0] for option in options} for options in lines if "user" not in options]
    assert len(by_systemd) == 2
    for names in by_systemd:
        assert names >= {"_netdev", "x-systemd.requires-mounts-for", "x-systemd.mount-timeout"}
    (unit,) = (EXAMPLES / "systemd").glob("*.mount")
    settings = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and not line.startswith("#"))
    assert settings["RequiresMountsFor"] == settings["What"] and settings["TimeoutSec"]
    assert "_netdev" in settings["Options"].split(",")


@pytest.mark.parametrize(
    ("what", "source", "constant"),
    [
        ("Saved catalogs", "cache/catalog/image.h", "kVersion"),
        ("Saved indexes of packed files", "plan/formats/index/saved_index.cc", "kIndexVersion"),
        ("The index of a directory of --nvme", "cache/nvme/record.h", "kVersion"),
        ("Messages between nodes", "net/transport/wire.h", "kVersion"),
    ],
)
def test_versions_of_formats_are_those_of_the_sources(what, source, constant):
    (version,) = re.findall(rf"{constant} = (\d+);", (REPO / source).read_text())
    assert f"{what}\nversion {version}\n" in text_of(MANUALS / "clairfs-troubleshooting.7.in")
    changes = (REPO / "mount-helper/package/changelog").read_text()
    newest = re.search(rf"{what} have version (\d+)", changes)
    assert newest is None or newest[1] == version


PICTURES = sorted(EXAMPLES.rglob("*.svg"))
assert EXAMPLES / "monitoring/course.svg" in PICTURES


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_pictures_have_titles_and_units(picture):
    """Each chart of one: a title in bold, what is on both axes; and the page that shows it says what is seen."""
    texts = [text for text in ElementTree.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}text")]
    titles = [text.text for text in texts if text.get("font-weight") == "bold"]
    words = [text.text for text in texts]
    assert len(titles) == 3 and all(len(title) > 20 for title in titles)
    assert words.count("seconds since the mount began") == len(titles) and {"MiB/s", "samples", "readers"} <= set(words)
    assert re.search(rf"!\[[^\]]{{30,}}\]\({picture.relative_to(EXAMPLES)}\)", (EXAMPLES / "README.md").read_text())


def options_in_manual():
    """{command: its options}, of the list of commands; those of mount have a section that the build fills."""
    lines = (MANUALS / "clairfs.1.in").read_text().split(".SH COMMANDS\n")[1].split("\n.SH ")[0].replace("\\-", "-").splitlines()
    found, depth, command = {}, 0, ""
    for before, line in zip(lines, lines[1:]):
        depth += {".RS": 1, ".RE": -1}.get(before, 0)
        if before == ".TP" and depth == 0:
            command = line.removeprefix(".B ")
            found[command] = set()
        elif before == ".TP":
            found[command] |= set(re.findall(r"--[a-z][a-z-]*", line))
    return found


@pytest.mark.parametrize("command", sorted(set(options_in_manual()) - {"mount", "cache", "help", "version"}))
def test_the_manual_has_the_options_of_each_command_and_no_others(command):
    heads = re.findall(r"^ +((?:--?[\w-]+,? *)+)", help_of(*command.split()), re.M)
    given = {option for head in heads for option in re.findall(r"--[a-z][a-z-]*", head)} - {"--help"}
    assert given == options_in_manual()[command]
