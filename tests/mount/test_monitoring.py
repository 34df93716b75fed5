"""`clairfs metrics`, and the dashboard and alert rules in examples/monitoring: they name what a mount really tells."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
import yaml
from clairmount import REPO, binary, clairfs, make_tree, tempdir, wait_until
from mounting import NOBODY, assert_one_line, cleaned, daemons, errno_of, error_name, run

EXAMPLES = REPO / "examples/monitoring"


def series_in(text):
    """Names of the series, each with its labels."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels = re.match(r"([a-z_]+)\{(.*)\} ", line).groups()
            found.setdefault(name, set()).update(re.findall(r'([a-z_]+)="', labels))
    return found


def collected(mount, tmp):
    """What another user is told, where there is one, who need not reach the build directory."""
    shutil.copy(binary(), tmp / "clairfs")
    identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.run([tmp / "clairfs", "metrics", mount.path], capture_output=True, check=True, text=True, timeout=60, **identity).stdout


@pytest.fixture(scope="module")
def told():
    """The series of a mount with a plan and a trouble: what its owner is told, and what a collector is."""
    with tempdir() as tmp:
        make_tree(tmp / "src", {"file": 10, "changed": 10})
        with clairfs(tmp / "src", *["--allow-other"] * (os.geteuid() == 0)) as mount:
            (tmp / "src/changed").write_text("something else")
            assert error_name((mount.path / "changed").read_bytes) == "ESTALE"
            wait_until(lambda: mount.stats()["troubles"], "the trouble is counted")
            (mount.path / ".clairfs/plan").write_text("format=files seed=1\n")  # last: it would push the file ahead
            yield {"owner": series_in(run("metrics", mount.path).stdout), "collector": series_in(collected(mount, tmp))}


def used(expression):
    """(name, labels) of every series in a PromQL expression."""
    return [(name, re.findall(r"([a-z_]+) *(?:=~|!~|!=|=)", labels or "")) for name, labels in re.findall(r"\b(clairfs_[a-z_]+)(?:\{([^}]*)\})?", expression)]


def assert_told(expressions, series):
    assert expressions
    for expression in expressions:
        assert used(expression), expression
        for name, labels in used(expression):
            assert name in series, f"{name} in {expression}"
            assert not set(labels) - series[name] - {"instance"}, expression  # Prometheus adds that one


def test_the_dashboard_shows_what_there_is(told):
    series = told["owner"]
    dashboard = json.loads((EXAMPLES / "grafana.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    assert_told([target["expr"] for target in targets], series)
    assert_told([var["definition"].removeprefix("label_values(").split(",")[0] for var in dashboard["templating"]["list"] if "definition" in var], series)
    for target in targets:  # legends name labels that the series has
        labels = set().union(*(series[name] for name, _ in used(target["expr"]))) | {"instance"}
        assert set(re.findall(r"\{\{ *([a-z_]+) *\}\}", target["legendFormat"])) <= labels
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_alert_rules_name_what_there_is(told):
    """Also for a collector that is another user."""
    series = told["collector"]
    rules = [rule for group in yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
    assert_told([rule["expr"] for rule in rules], series)
    kinds = set(re.findall(r'"([a-z_]+)"', (REPO / "fs/control/troubles.cc").read_text()))
    expressions = " ".join(rule["expr"] for rule in rules)
    for wanted in ('kind="plan_suspended"', 'kind="plan_failed"', "stall_seconds", "pfs_errors", "nvme_disabled"):
        assert wanted in expressions
    for rule in rules:
        for value in re.findall(r'kind=~?"([^"]+)"', rule["expr"]):
            assert set(value.split("|")) <= kinds
        assert rule["annotations"]["summary"]
        for label in re.findall(r"\$labels\.([a-z_]+)", json.dumps(rule["annotations"])):
            assert any(label in series[name] for name, _ in used(rule["expr"]))


def assert_bind_mounts_are_no_mounts(mount, tmp):
    """Containers are given them: of the whole mount, or of a folder, which has no control files."""
    if os.geteuid() != 0:
        return
    before = [run("metrics").stdout.count("clairfs_up{"), run("list").stdout.count("\n")]
    with contextlib.ExitStack() as stack:
        for number, source in enumerate([mount.path, mount.path / "folder"]):
            (tmp / f"bind{number}").mkdir()
            subprocess.run(["mount", "--bind", source, tmp / f"bind{number}"], check=True, timeout=60)
            stack.callback(subprocess.run, ["umount", "-l", tmp / f"bind{number}"], check=True, timeout=60)
        assert [run("metrics").stdout.count("clairfs_up{"), run("list").stdout.count("\n")] == before


def test_all_mounts_in_one_text(tmp):
    make_tree(tmp / "src", {"file": 10, "folder/file": 10})
    (tmp / "dead").mkdir()
    with clairfs(tmp / "src") as one, clairfs(tmp / "src") as two, cleaned(tmp / "dead"):
        assert run("mount", tmp / "src", tmp / "dead", "--catalog-dir", tmp / "catalog").returncode == 0
        (daemon,) = daemons(tmp / "dead")
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: errno_of(os.statvfs, tmp / "dead") != 0, "the mount is stale")
        text = run("metrics").stdout
        for mount in (one, two):
            assert f'clairfs_up{{mount="{mount.path}",dataset="{tmp / "src"}"}} 1\n' in text
            assert text.count(f'clairfs_build_info{{mount="{mount.path}"') == 1
        assert f'clairfs_up{{mount="{tmp / "dead"}",dataset="{tmp / "src"}"}} 0\n' in text
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
        assert len(names) == len(set(names))
        assert str(two.path) not in run("metrics", one.path).stdout
        assert_bind_mounts_are_no_mounts(one, tmp)

        (tmp / "textfile").mkdir()
        for _ in range(2):  # a file that is there is replaced
            done = run("metrics", "--output", tmp / "textfile/clairfs.prom")
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
            assert os.listdir(tmp / "textfile") == ["clairfs.prom"]
            assert "clairfs_up{" in (tmp / "textfile/clairfs.prom").read_text()
        assert (tmp / "textfile/clairfs.prom").stat().st_mode & 0o777 == 0o644
        assert_one_line(run("metrics", "--output", tmp / "missing/clairfs.prom"), "No such file", status=2)
