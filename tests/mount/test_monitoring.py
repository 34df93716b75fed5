"""The dashboard, the alert rules and the collector in examples/monitoring: they name what a mount really tells."""

import json
import os
import re
import subprocess

import pytest
import yaml
from clairmount import REPO, clairfs, make_tree, wait_until
from mounting import error_name

EXAMPLES = REPO / "examples/monitoring"


@pytest.fixture(scope="module")
def series():
    """Names of the series of a mount with a plan and a trouble, each with its labels."""
    from clairmount import tempdir

    with tempdir() as tmp:
        make_tree(tmp / "src", {"file": 10, "changed": 10})
        with clairfs(tmp / "src") as mount:
            (tmp / "src/changed").write_text("something else")
            assert error_name((mount.path / "changed").read_bytes) == "ESTALE"
            wait_until(lambda: mount.stats()["troubles"], "the trouble is counted")
            (mount.path / ".clairfs/plan").write_text("format=files seed=1\n")  # last: it would push the file ahead
            found = {}
            for line in mount.control("metrics").splitlines():
                if not line.startswith("#"):
                    name, labels = re.match(r"([a-z_]+)\{(.*)\} ", line).groups()
                    found.setdefault(name, set()).update(re.findall(r'([a-z_]+)="', labels))
    return found


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


def test_the_dashboard_shows_what_there_is(series):
    dashboard = json.loads((EXAMPLES / "grafana.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    assert_told([target["expr"] for target in targets], series)
    assert_told([var["definition"].removeprefix("label_values(").split(",")[0] for var in dashboard["templating"]["list"] if "definition" in var], series)
    for target in targets:  # legends name labels that the series has
        labels = set().union(*(series[name] for name, _ in used(target["expr"]))) | {"instance"}
        assert set(re.findall(r"\{\{ *([a-z_]+) *\}\}", target["legendFormat"])) <= labels
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_alert_rules_name_what_there_is(series):
    rules = [rule for group in yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
    assert_told([rule["expr"] for rule in rules], series)
    kinds = set(re.findall(r'"([a-z_]+)"', (REPO / "fs/control/troubles.cc").read_text()))
    states = {"waiting", "following", "suspended", "finished"}
    for rule in rules:
        for value in re.findall(r'kind=~?"([^"]+)"', rule["expr"]):
            assert set(value.split("|")) <= kinds
        for value in re.findall(r'state="([^"]+)"', rule["expr"]):
            assert value in states
        assert rule["annotations"]["summary"]
        for label in re.findall(r"\$labels\.([a-z_]+)", json.dumps(rule["annotations"])):
            assert any(label in series[name] for name, _ in used(rule["expr"]))


def test_the_collector_hands_over_every_mount(tmp):
    make_tree(tmp / "src", {"file": 10})
    folder = tmp / "textfile"
    folder.mkdir()
    (folder / "clairfs-999.prom").write_text("of a mount that is gone\n")
    (folder / "other.prom").write_text("somebody else's\n")
    with clairfs(tmp / "src") as one, clairfs(tmp / "src") as two:
        done = subprocess.run([EXAMPLES / "collect.sh", folder], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        texts = {path: path.read_text() for path in folder.glob("clairfs-*.prom")}
        for mount in (one, two):
            assert sum(f'clairfs_build_info{{mount="{mount.path}"' in text for text in texts.values()) == 1
        assert folder / "clairfs-999.prom" not in texts
        assert sorted(os.listdir(folder)) == sorted([path.name for path in texts] + ["other.prom"])
