"""`clairfs simulate`, `clairfs calibrate` and `clairfs plan stats` as people and scripts use them."""

import csv
import io
import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import clairmount
import pytest
from clairmount import binary

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ROOT / "examples/scenarios/small-cluster-1.toml"
POLICIES = (
    "lower-bound naive staging deepio-ordered deepio-opportunistic parallel-staging lbann-dynamic lbann-preload "
    "locality-aware nopfs clairfs"
).split()


def run(*words, timeout=300 * clairmount.SLOWNESS):
    return subprocess.run(
        [str(word) for word in (binary(), *words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip


def ok(*words, **named):
    """Output of a command that must succeed."""
    done = run(*words, **named)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


def refused(*words, status=1):
    """The one error line of a command that must fail."""
    done = run(*words)
    assert done.returncode == status and done.stdout == "", done
    assert done.stderr.startswith("clairfs: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def tmp():
    with clairmount.tempdir() as path:
        yield path


def check_schema(point):
    """One object of --json."""
    assert point["policy"] in POLICIES
    assert isinstance(point["keeps_order"], bool)
    if point["runtime_s"] is None:
        assert point["refusal"] and point["stall_s"] is None and point["bytes_by_source"] is None
        return
    for key in ("runtime_s", "stall_s", "ratio_to_lower_bound", "preparation_s", "compute_s"):
        assert isinstance(point[key], (int, float)) and point[key] >= 0, (key, point)
    for key in ("bytes_by_source", "delivered_bytes_by_source", "stall_s_by_source"):
        assert list(point[key]) == ["pfs", "peer", "local"]
    assert all(isinstance(count, int) for count in point["bytes_by_source"].values())
    assert point["ratio_to_lower_bound"] >= 1 - 1e-9
    assert point["runtime_s"] == pytest.approx(point["compute_s"] + point["stall_s"])
    assert sum(point["epoch_s"]) == pytest.approx(point["runtime_s"])


def test_all_policies_as_json():
    points = json.loads(ok("simulate", SMALL, "--json"))
    assert [point["policy"] for point in points] == POLICIES
    for point in points:
        check_schema(point)
    by_policy = {point["policy"]: point for point in points}
    assert by_policy["lower-bound"]["ratio_to_lower_bound"] == 1
    assert by_policy["clairfs"]["ratio_to_lower_bound"] < 1.02
    changed = {point["policy"] for point in points if not point["keeps_order"]}
    assert changed == {"deepio-opportunistic", "parallel-staging", "locality-aware"}


def test_a_scenario_whose_name_is_no_text(tmp):
    scenario = tmp / os.fsdecode(b"a\xff.toml")
    scenario.write_bytes(SMALL.read_bytes())
    (point,) = json.loads(ok("simulate", scenario, "--policy", "naive", "--json"))
    assert point["scenario"] == "a\ufffd"


def test_the_table_is_aligned():
    lines = ok("simulate", SMALL).splitlines()
    assert lines[0].startswith("small-cluster-1: 4 workers, 10 epochs, batch 100, 10000 samples")
    assert [line.split()[0] for line in lines[1:]] == ["policy", *POLICIES]
    ends = {line.index(line.split()[1]) + len(line.split()[1]) for line in lines[2:]}
    assert len(ends) == 1  # the runtimes stand under each other


def test_a_policy_that_cannot_run_the_job_says_why():
    words = ("simulate", SMALL, "--policy", "lbann-preload", "--sweep", "ram=1M")
    assert "not possible: the dataset" in ok(*words)
    (point,) = json.loads(ok(*words, "--json"))
    check_schema(point)
    assert "larger than the memory" in point["refusal"]


def test_sweeps_run_all_combinations():
    words = ["simulate", SMALL, "--policy", "clairfs", "--policy", "nopfs"]
    words += ["--sweep", "ram=0,20M,40M", "--sweep", "nvme=0,1G"]
    points = json.loads(ok(*words, "--json"))
    assert [(p["settings"]["ram"], p["settings"]["nvme"], p["policy"]) for p in points] == [
        (ram, nvme, policy) for ram in ("0", "20M", "40M") for nvme in ("0", "1G") for policy in ("clairfs", "nopfs")
    ]
    runtime = {(p["settings"]["ram"], p["settings"]["nvme"], p["policy"]): p["runtime_s"] for p in points}
    assert runtime["40M", "0", "clairfs"] < runtime["20M", "0", "clairfs"] < runtime["0", "0", "clairfs"]
    assert runtime["0", "1G", "nopfs"] < runtime["0", "0", "nopfs"]

    rows = list(csv.DictReader(io.StringIO(ok(*words, "--csv"))))
    assert [float(row["runtime_s"]) for row in rows] == pytest.approx([p["runtime_s"] for p in points], abs=1e-5)
    assert [int(row["pfs_bytes"]) for row in rows] == [p["bytes_by_source"]["pfs"] for p in points]


def test_plots_are_well_formed(tmp):
    single = tmp / "single.svg"
    ok("simulate", SMALL, "--plot", single)
    svg = ElementTree.parse(single).getroot()
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    words = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Naive", "clairfs", "Time of each epoch", "binomial"} <= set(words)
    width, height = float(svg.get("width")), float(svg.get("height"))
    for shape in svg.iter("{http://www.w3.org/2000/svg}rect"):
        if shape.get("width") == "100%":
            continue
        assert 0 <= float(shape.get("x")) and float(shape.get("x")) + float(shape.get("width")) <= width
        assert 0 <= float(shape.get("y")) and float(shape.get("y")) + float(shape.get("height")) <= height

    sweep = tmp / "sweep.svg"
    ok("simulate", SMALL, "--policy", "clairfs", "--sweep", "ram=0,20M", "--sweep", "nvme=0,1G", "--plot", sweep)
    words = [text.text for text in ElementTree.parse(sweep).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert {"clairfs, nvme=0", "clairfs, nvme=1G", "20M", "Lower bound"} <= set(words)


def test_bad_scenarios_name_the_line_and_the_key(tmp):
    good = SMALL.read_text()
    bad = tmp / "bad.toml"

    def error(before, after):
        assert before in good
        bad.write_text(good.replace(before, after, 1))
        line = good[: good.index(before)].count("\n") + 1
        return line, refused("simulate", bad)

    line, text = error('capacity = "50G"', "capacity = -5")
    assert text == f"clairfs: {bad}:{line}: capacity: want at least 0\n"
    line, text = error("compute = 100 ", "copute = 100 ")
    assert f"{bad}:{line}: copute: no key of [worker]" in text
    line, text = error("threads = 2\nread = {2 = 86}", "read = {2 = 86}")
    assert f"{bad}:{line - 2}: threads: missing in [class.nvme]" in text  # the section's line
    line, text = error("workers = 4", 'workers = "four"')
    assert f"{bad}:{line}: workers: want a number" in text
    line, text = error('sampler = "nopfs"', 'sampler = "numpy"')
    assert f'{bad}:{line}: sampler: want one of "nopfs", "torch.distributed"' in text
    line, text = error("mean = 0.027", "mean = 1e308")
    assert f"{bad}:{line}: mean: want at most 4096 MB" in text
    line, text = error("read = {2 = 86}", "read = {2 = 86, 2 = 87}")
    assert f"{bad}:{line}: read: a number of threads or clients comes twice" in text
    line, text = error("[class.nvme]", "[class.ram]")
    assert f"{bad}:{line}: [class.ram] comes twice" in text
    line, text = error("drop_last = true", "drop_last = true true")
    assert f"{bad}:{line}: drop_last: 'true true' is no value" in text
    assert "No such file" in refused("simulate", tmp / "missing.toml")
    assert "Is a directory" in refused("simulate", tmp, status=2)
    assert "too long for a scenario" in refused("simulate", "/dev/zero")


def test_bad_arguments_say_what_would_be_right(tmp):
    text = refused("simulate", SMALL, "--policy", "magic")
    assert "'magic' is none of lower-bound, naive" in text
    assert "use staging, ram, nvme or SECTION.KEY" in refused("simulate", SMALL, "--sweep", "disk=1")
    assert "ram=1G comes twice" in refused("simulate", SMALL, "--sweep", "ram=1G,1G")
    assert "want NAME=VALUE" in refused("simulate", SMALL, "--sweep", "ram")
    assert "--json" in refused("simulate", SMALL, "--json", "--csv")
    assert "no/such/dir" in refused("simulate", SMALL, "--policy", "naive", "--plot", tmp / "no/such/dir/x.svg")
    assert "the picture is SVG" in refused("simulate", SMALL, "--policy", "naive", "--plot", tmp / "x.png")


def said_on_a_terminal(*words):
    """(standard output, what a terminal as its standard error was told)."""
    terminal, side = pty.openpty()
    with os.fdopen(side, "w") as stderr:
        process = subprocess.Popen([binary(), *words], stdout=subprocess.PIPE, stderr=stderr)
    seen = b""
    try:
        while chunk := os.read(terminal, 4096):
            seen += chunk
    except OSError:  # how a pty ends
        pass
    out, _ = process.communicate(timeout=300 * clairmount.SLOWNESS)
    os.close(terminal)
    assert process.returncode == 0, seen
    return out, seen


def test_a_progress_bar_on_a_terminal_only(tmp):
    scenario = tmp / "longer.toml"
    scenario.write_text(SMALL.read_text().replace("count = 10000", "count = 80000"))
    out, seen = said_on_a_terminal("simulate", scenario, "--json")
    assert len(json.loads(out)) == len(POLICIES)
    assert b"ETA" in seen and re.search(rb"% +[a-z-]+ \(\d+/11\)", seen), seen

    (tmp / "source").mkdir()
    (tmp / "source/file").write_bytes(os.urandom(30000))
    out, seen = said_on_a_terminal("calibrate", tmp / "source", "--seconds", "0.2", "--bytes", "16M")
    assert b"[" in out and b"%" in seen and b"%" not in out


def test_where_output_goes_is_looked_at_before_the_work(tmp):
    """Which takes minutes: so before what else is wrong."""
    for words in (["calibrate", tmp / "none", "-o"], ["simulate", tmp / "none", "--plot"], ["plan", "stats", "root=/none", "--plot"]):
        assert f"create {tmp}/absent/out: No such file" in refused(*words, tmp / "absent/out")
        assert f"create {tmp}: Is a directory" in refused(*words, tmp, status=2)
    assert f"{tmp}/absent: No such file" in refused("calibrate", tmp / "none", "--nvme", tmp / "absent")


def test_calibrate_writes_a_scenario_that_simulate_takes(tmp):
    source = tmp / "source"
    (source / "a").mkdir(parents=True)
    for number in range(50):
        (source / f"a/{number}").write_bytes(os.urandom(30000))
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    nvme = tmp / "nvme"
    nvme.mkdir()
    scenario = tmp / "mine.toml"
    done = ok("calibrate", source, "--nvme", nvme, "--seconds", "0.05", "--bytes", "16M", "--threads", "4", "-o", scenario)
    assert done == ""
    assert list(nvme.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before
    points = json.loads(ok("simulate", scenario, "--json", "--sweep", "job.batch=10"))
    assert [point["policy"] for point in points] == POLICIES
    text = scenario.read_text()
    assert "(not measured)" in text and "[class.nvme]" in text and "1 = " in text and "4 = " in text

    assert "[class.nvme]" not in ok("calibrate", source, "--seconds", "0.05", "--bytes", "16M")
    assert "no file with bytes" in refused("calibrate", nvme)
    assert "missing" in refused("calibrate", source, "--nvme", tmp / "missing", "--seconds", "0.05")
    assert "at least 16M" in refused("calibrate", source, "--bytes", "1M")


def test_plan_stats_agree_with_the_papers_example():
    words = ("n=10000", "epochs=1000", "world=4", "seed=1")
    stats = json.loads(ok("plan", "stats", *words, "--delta", "0.1", "--json"))
    assert stats["mean_reads"] == 250
    (tail,) = stats["tails"]
    assert tail["expected"] == pytest.approx(323, abs=0.5)
    assert tail["counted"] == pytest.approx(323, abs=30)
    assert "250 times on average" in ok("plan", "stats", *words)


def test_plan_stats_count_local_reads_under_the_placement(tmp):
    words = ("n=1000", "epochs=5", "world=4", "batch=10", "seed=1", "--sample-size", "1M")
    stats = json.loads(ok("plan", "stats", *words, "--ram", "100M", "--nvme", "150M", "--json"))
    assert stats["bytes"]["pfs"] == 0
    assert stats["bytes"]["warm_up"] == 1000 << 20
    local = stats["bytes"]["ram"] + stats["bytes"]["nvme"]
    assert local > 0.3 * 5000 * (1 << 20)  # a random home would have a quarter
    assert "from another node" in ok("plan", "stats", *words, "--ram", "100M")
    picture = tmp / "stats.svg"
    ok("plan", "stats", *words, "--ram", "100M", "--plot", picture)
    said = {text.text for text in ElementTree.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}text")}
    assert "How often a node reads a sample over the job: 4 nodes, 5 epochs, 1,000 samples" in said
    assert {"counted", "binomial", "own RAM", "another node"} <= said
    assert {"reads", "samples", "Where all nodes read from over the job", "GiB"} <= said
    assert "the picture is SVG" in refused("plan", "stats", *words, "--plot", tmp / "stats.png")
    assert "root" in refused("plan", "stats", "n=10", "epochs=2", "seed=1", "--ram", "1G")
    assert "epochs" in refused("plan", "stats", "n=10", "seed=1")


def test_plan_stats_count_of_records_the_bytes_that_are_read(tmp):
    """Records of 1000 bytes in three chunks of 4 MiB and less; each node has room for one."""
    (tmp / "rows.bin").write_bytes(bytes(12_000_000))
    words = (f"root={tmp}", "format=raw", "file=rows.bin", "record=1000", "seed=1", "epochs=4", "world=4", "ranks_per_node=1",
             "batch=10")
    read = json.loads(ok("plan", "stats", *words, "--ram", "4M", "--json"))["bytes"]
    assert (read["warm_up"], read["pfs"]) == (12_000_000, 0)
    assert read["ram"] + read["peer"] == 4 * 12_000_000
    assert 0.25 <= read["ram"] / (4 * 12_000_000) <= 0.45


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
