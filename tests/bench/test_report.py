"""The report from made-up figures, and what run.sh builds and runs: nothing is measured and nothing is mounted."""

import io
import json
import os
import pathlib
import re
import sys
import time
import tomllib
import types
import xml.etree.ElementTree as ElementTree

import pytest

import benchlib
import cost
import engine
import epochs
import metadata
import model
import packed
import peers
import report
import rivals
import shortjob
from reporting import svgplot


@pytest.fixture(autouse=True)
def no_programs(monkeypatch):
    """Neither a build nor the programs that the figures are of are needed."""
    monkeypatch.setattr(report, "machine", lambda: {"CPU": "made up"})
    monkeypatch.setattr(report, "versions", lambda: {"clairfs": "0", "commit": "abc123"})


def write_part(folder, name, tables, charts=(), skipped=(), rounds=None, quick=True):
    (folder / "data").mkdir(exist_ok=True)
    part = {"run": {"begin": 0, "seconds": 7.2, "quick": quick}, "tables": {table.title: table.rows for table in tables}}
    part |= {"charts": list(charts), "skipped": list(skipped), "rounds": rounds or {}}
    (folder / "data" / f"{name}.json").write_text(json.dumps(part))


def made(folder, earlier=None):
    report.make(folder, earlier)
    return (folder / "REPORT.md").read_text(), json.loads((folder / "report.json").read_text())


def speeds():
    table = benchlib.Table("Speeds")
    table.add("slow | read", 5, "files/s", at_least=10, ratio=(0.25, "the source"), note="why")
    table.add("wait", 3.0, "%", at_most=2)
    table.add("fast read", 20, "files/s", at_least=10)
    table.add("no target", 1)
    return table


def test_misses_are_listed_with_the_worst_first(tmp):
    write_part(tmp, "a1-frontend", [speeds()])
    text, found = made(tmp)
    assert [miss["figure"] for miss in found["misses"]] == ["slow | read", "wait"]
    assert [miss["off"] for miss in found["misses"]] == [2, 1.5]
    assert found["reached"] == 1
    assert "1 of 3 targets were reached" in text
    assert text.index("slow \\| read") < text.index("| wait")
    assert text.count("**NO**") == 2


def test_ratio_stands_beside_its_figure(tmp):
    write_part(tmp, "a1-frontend", [speeds()])
    assert "| slow \\| read | 5 files/s | at least 10 | **NO** | 0.25 of the source, why |" in made(tmp)[0]


def test_a_near_miss_does_not_look_like_its_target(tmp):
    table = benchlib.Table("Near")
    table.add("total / bound", 1.0512, at_most=1.05)
    write_part(tmp, "b1-epochs", [table])
    assert "| total / bound | 1.0512 | at most 1.05 | **NO** |" in made(tmp)[0]


def test_sections_and_parts_stand_in_order(tmp):
    for name in ("c1-peers", "a2-rivals", "a1-frontend"):
        write_part(tmp, name, [benchlib.Table(f"table of {name}")])
    text, found = made(tmp)
    assert [(s["key"], [p["name"] for p in s["parts"]]) for s in found["sections"]] == [
        ("a", ["frontend", "rivals"]),
        ("c", ["peers"]),
    ]
    assert text.index("table of a1") < text.index("table of a2") < text.index("table of c1")


def test_rounds_are_stated(tmp):
    write_part(tmp, "a1-frontend", [speeds()], rounds={"x": [1, 2, 3], "y": [1]})
    assert "frontend: quick, 1 to 3 rounds" in made(tmp)[0]


def test_what_was_skipped_or_broke_down_is_said(tmp):
    write_part(tmp, "a1-rivals", [], skipped=[{"what": "rclone", "why": "not installed"}])
    write_part(tmp, "a2-push", [speeds()])
    for name in ("a2-push", "a3-large"):
        (tmp / f"data/{name}.failed").write_text("exit status 1")
    text, _ = made(tmp)
    assert "Skipped: rclone: not installed" in text
    assert "push broke down:** exit status 1" in text
    assert "| fast read |" in text
    assert "large broke down:** exit status 1" in text


def table_of(title, value):
    table = benchlib.Table(title)
    table.add("rate", value, "files/s")
    return table


def beside(tmp, new, old, old_is_quick=True):
    """The text of a quick report with the tables `new`, beside an earlier one with the tables `old`."""
    for name, tables, quick in (("old", old, old_is_quick), ("new", new, True)):
        (tmp / name).mkdir()
        write_part(tmp / name, "a1-frontend", tables, quick=quick)
    _, earlier = made(tmp / "old")
    return made(tmp / "new", earlier)[0]


def test_earlier_figures_stand_beside_the_new(tmp):
    old = speeds()
    for row in old.rows:
        row["value"] *= 2
    old.rows = old.rows[:1]
    text = beside(tmp, [speeds()], [old])
    assert "Before: quick, commit abc123, 1970-01-01." in text
    assert "| slow \\| read | 5 files/s | 10 files/s |" in text
    assert "| fast read | 20 files/s |  |" in text


def test_quick_is_not_compared_with_full(tmp):
    text = beside(tmp, [table_of("Speeds", 1)], [table_of("Speeds", 2)], old_is_quick=False)
    assert "Before: full, commit abc123, 1970-01-01. Not compared, since one of the two is quick and the other full: frontend." in text
    assert "| rate | 1 files/s |" in text
    assert "2 files/s" not in text


def test_a_table_is_found_again_though_a_number_in_its_title_changed(tmp):
    new = [table_of("4,061 images, 88 MB", 1), table_of("one image", 2)]
    text = beside(tmp, new, [table_of("4,073 images, 88.5 MB", 3), table_of("one image", 4)])
    assert "Before: 4,073 images, 88.5 MB" in text
    assert "| rate | 1 files/s | 3 files/s |" in text
    assert "| rate | 2 files/s | 4 files/s |" in text


def test_a_table_that_may_be_any_of_several_is_compared_with_none(tmp):
    new = [table_of("files of 4 KB", 1), table_of("files of 110 KB", 2)]
    text = beside(tmp, new, [table_of("files of 5 KB", 3), table_of("files of 120 KB", 4)])
    assert "| rate | 1 files/s |\n" in text
    assert "Not there: files of 4 KB; files of 110 KB." in text


def test_a_miss_has_its_cause_or_says_that_none_is_known(tmp):
    known, unknown = benchlib.Table("Sequential reads of a file of 256 MB"), benchlib.Table("Epochs")
    known.add("page cache / source", 0.5, at_least=0.8)
    unknown.add("page cache / source", 0.5, at_least=0.8)
    write_part(tmp, "a1-frontend", [known, unknown])
    text, found = made(tmp)
    assert "| page cache / source | 0.5 | at least 0.8 | cause 1 |" in text
    assert "\n1. The kernel keeps" in text
    assert "| page cache / source | 0.5 | at least 0.8 | cause not known |" in text
    assert [miss["cause"] is None for miss in found["misses"]] == [False, True]


def model_rows(predicted, measured):
    """What the comparison of model and reality says of a case with these local bytes, in MB."""
    samples = benchlib.Samples()
    for kind, local in (("predicted", predicted), ("measured", measured)):
        for figure, value in {"runtime": 100, "stall": 10, "pfs": 500, "peer": 0, "local": local}.items():
            samples.add(f"case: {figure}, {kind}", value)
    table, _ = model.comparison(["case"], 1, samples)
    return {row["figure"].split(": ")[1].split(",")[0]: row for row in table.rows}


@pytest.mark.parametrize(("predicted", "reached"), [(20, True), (25.2, True), (15, True), (25.3, False), (14.7, False)])
def test_a_target_of_the_model_does_not_follow_what_the_model_said(predicted, reached):
    row = model_rows(predicted, 20)["local"]
    assert row["at_most"] == pytest.approx(5.2)  # 1 % of 520 MB, more than 10 % of 20
    assert row["reached"] is reached


def test_nothing_predicted_and_nothing_measured_is_no_target_reached():
    rows = model_rows(0, 0)
    assert rows["peer"]["reached"] is None
    assert rows["runtime"]["reached"] is True
    assert "1 run" in rows["runtime"]["note"]


class OneBound:
    """What shortjob asks of a case: a dataset of 100 bytes, and 50 of cache."""

    bandwidth, compute_us = 10, 0
    bound = least_bytes = staticmethod(lambda share: {0: 20, 0.5: 10}[share])


def test_a_short_job_has_to_be_as_fast_and_frugal_in_its_worst_run():
    samples, label = benchlib.Samples(), "N·D = 1.5 S"
    for name, share in ((shortjob.ALONE, 0), *((name, 0.5) for name in shortjob.CASES)):
        for first, read in ((0.1, 10), (0.2, 11), (0.1, 10)):
            runs = [{"seconds": 2, "waits": [first]}, {"seconds": 3, "waits": [0.1]}]
            shortjob.record(OneBound, name, share, [runs, runs], read, samples)
            samples.add(f"{name} stall", 1)
    samples.add(f"{shortjob.WARM} total", shortjob.total_of([runs, runs]))
    rows = {row["figure"]: row for row in shortjob.table_of("short", 0.11, samples).rows}
    assert rows[f"{label}: total / lower bound"]["value"] == 0.5  # 5 s of 10
    assert rows[f"{label}: first batch of the slowest node"]["value"] == 0.1
    assert rows[f"{label}: first batch of the slowest node, worst run"]["value"] == 0.2
    assert rows[f"{label}: first batch of the slowest node, worst run"]["reached"] is False
    assert rows[f"{label}: PFS bytes / least"]["value"] == 1
    assert rows[f"{label}: PFS bytes / least, worst run"]["reached"] is False
    assert rows[f"{shortjob.ALONE}: first batch of the slowest node"]["reached"] is None
    assert rows[f"{shortjob.WARM}: total"]["value"] == 5


def test_all_nodes_of_a_simulated_job_keep_the_dataset_and_have_whole_batches():
    for nodes in cost.SIMULATED_NODES:
        told = tomllib.loads(cost.scenario(nodes, 10**6))
        assert told["job"]["batch"] % nodes == 0
        assert told["class"]["ram"]["capacity"] * nodes == pytest.approx(told["samples"]["mean"] * 10**6)


def test_a_simulated_job_stands_beside_the_smaller_one_where_there_is_one():
    samples = benchlib.Samples()
    for nodes, count, seconds in ((64, 1000, 2), (1024, 1000, 3), (1024, cost.HUGE, 90)):
        for figure, value in {"seconds": seconds, "memory": 100 * count, "runtime": 1.1}.items():
            samples.add(f"simulated {count} {nodes} {figure}", value)
    cases = [(64, 1000), (1024, 1000), (1024, cost.HUGE)]
    rows = {row["figure"]: row for row in cost.simulator_table(cases, samples).rows}
    assert rows["64 nodes, 1,000 samples: time"]["ratio"] is None
    assert rows["1,024 nodes, 1,000 samples: time"]["ratio"] == {"value": 1.5, "of": "64 nodes"}
    assert rows["1,024 nodes, 1,000 samples: memory"]["value"] == 100
    assert rows["1,024 nodes, 100,000,000 samples: time"]["ratio"] is None


GROWTH = [f"register_plan/{10**power}" for power in (4, 5, 6, 7)] + ["register_plan/100000000/iterations:1"]
GROWTH += [f"place/files:{10**power}/nodes:8/iterations:1" for power in (4, 5, 6, 7)]


@pytest.mark.parametrize(("quick", "huge", "left_out"), [(True, False, {4, 8}), (False, False, {4}), (False, True, set())])
def test_planning_of_100_million_files_is_only_measured_if_it_is_asked_for(quick, huge, left_out):
    chosen = cost.growth_filter(quick, huge)
    run = [name for name in GROWTH if bool(re.search(chosen.removeprefix("-"), name)) != chosen.startswith("-")]
    assert run == [name for i, name in enumerate(GROWTH) if i not in left_out]


def test_the_memory_of_a_program_is_its_own():
    touch = "import mmap; mmap.mmap(-1, 1 << 28, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE); print('there')"
    printed, _, memory = benchlib.run_measured(sys.executable, "-c", touch, timeout=60)
    assert printed == "there\n"
    assert memory > 1 << 28
    with pytest.raises(RuntimeError, match="exit status 3"):
        benchlib.run_measured(sys.executable, "-c", "raise SystemExit(3)", timeout=60)


def test_the_names_of_a_large_folder_are_read_beside_the_source():
    samples = benchlib.Samples()
    for state, seconds in {"source": [1, 2], "fresh": [3, 4], "again": [2, 2]}.items():
        for value in seconds:
            samples.add(f"folder {state}", value)
    rows = {row["figure"]: row for row in metadata.folder_table(1000, samples).rows}
    assert rows["clairfs, fresh mount"]["ratio"] == {"value": 2.5, "of": "the source's time"}
    assert rows["source"]["value"] == 1.5


def test_a_large_folder_has_as_many_files_as_it_should(tmp):
    metadata.make_folder(tmp / "large", 3)
    assert len(list((tmp / "large").iterdir())) == 3


def test_an_idle_node_may_take_less_than_one_with_a_plan_that_nobody_reads():
    samples = benchlib.Samples()
    for label in peers.IDLE:
        samples.add(f"{label} 0", 0.2)
    rows = {row["figure"]: row["reached"] for row in peers.idle_table(1, 5, samples).rows}
    assert rows == {"rank 0: processor": False, "rank 0: processor, with a plan that nobody reads": True}


def test_the_start_of_a_job_is_what_comes_beyond_mpi_in_the_same_round():
    samples = benchlib.Samples()
    for of_mpi, of_job in ((0.2, 0.5), (0.9, 1.0), (0.3, 0.55)):
        peers.record_start(of_mpi, of_job, samples)
    beyond = peers.start_table(samples).rows[-1]
    assert (beyond["value"], beyond["reached"]) == (pytest.approx(0.25), False)


def test_a_plan_must_cost_nothing_where_memory_is_to_spare():
    case, samples = types.SimpleNamespace(size=100, epochs=3, bandwidth=100_000_000, latency_us=1000), benchlib.Samples()
    for key, _, tier, with_plan in epochs.spare_cases():
        first, later, read = (1, 0.5, 300) if tier is None else (0.9, 0.2, 101) if with_plan else (0.8, 0.1, 100)
        epochs.record_spare(case, key, [{"seconds": first}, {"seconds": later}, {"seconds": later}], read, samples)
    rows = {row["figure"]: row for row in epochs.spare_table(case, samples).rows}
    for figure, value in {"total": 1.3, "PFS bytes": 1.01, "a later epoch": 2}.items():
        row = rows[f"RAM tier 0.5 S, 4 workers: {figure}, with a plan / without"]
        assert (row["value"], row["reached"]) == (pytest.approx(value), False)
    first = rows["RAM tier 1.2 S, one reader: epoch 0, without a plan / the PFS itself"]
    assert (first["value"], first["reached"]) == (0.8, True)
    assert rows["the PFS itself, 4 workers: PFS bytes"]["value"] == 3


def test_of_two_jobs_it_is_said_how_much_longer_one_took_whichever_it_was():
    samples = benchlib.Samples()
    for how in epochs.HOW:
        for seconds in ([2, 3], [4, 2], [2, 2]):
            epochs.record_jobs(how, seconds, samples)
    rows = {row["figure"]: row["value"] for row in epochs.jobs_table("two", samples).rows}
    assert rows["on one mount, a plan each: the slower job"] == 3
    assert rows["on one mount, a plan each: slower / faster"] == 1.5
    assert rows["on one mount, a plan each: slower / faster, worst run"] == 2


@pytest.mark.parametrize("padded", [256 * 112_000, 1024 * 112_000])
def test_of_two_jobs_neither_stays_in_the_page_cache_as_a_whole(padded):
    case = types.SimpleNamespace(padded=padded, ram=lambda share: int(share * padded))
    _, ram, _, staging = epochs.jobs_options([case, case])
    assert ram == padded
    assert staging <= padded // 4


def case_of_rivals(label, readers, **rates):
    """Each system reads that many files a second, whatever the number of readers."""
    case = rivals.Case.__new__(rivals.Case)
    case.label, case.count, case.samples = label, 1000, benchlib.Samples()
    for system, rate in rates.items():
        for n in readers:
            case.samples.add(f"{label} {system.replace('_', ' ')} {n}", rate)
    return case


def beside_others(label, **rates):
    case, table = case_of_rivals(label, rivals.READERS, **rates), benchlib.Table("goals")
    for n in rivals.READERS:
        case.add_goals(table, n)
    return {row["figure"]: row for row in table.rows}


def test_many_readers_stand_beside_the_source_and_eight():
    case = case_of_rivals("110 KB", rivals.READERS, source=100, bindfs=10, ram=50)
    case.many = (64,)
    case.samples.add("110 KB source 64", 80)
    case.samples.add("110 KB ram 64", 20)
    rows = {row["figure"]: row for row in case.many_table().rows}
    row = rows["clairfs, RAM tier, page cache cold, 64"]
    assert (row["value"], row["ratio"]["value"], row["note"]) == (20, 0.25, "0.40 of 8 readers")
    assert rows["clairfs, RAM tier, page cache cold / source directory, warm, 64"]["reached"] is False
    assert rows["clairfs, RAM tier, page cache cold, 8"]["value"] == 50
    assert not any("bindfs" in figure for figure in rows)


def test_the_ram_tier_is_compared_with_bindfs_where_one_reads_and_with_the_source_where_several_do():
    rows = beside_others("4 KB", source=100, bindfs=10, ram=26, pushed=80, page_cache=90)
    of_bindfs = rows["clairfs, RAM tier, page cache cold / bindfs, warm, 1"]
    assert (of_bindfs["value"], of_bindfs["reached"]) == (2.6, True)
    of_source = rows["clairfs, RAM tier, page cache cold / source directory, warm, 8"]
    assert (of_source["value"], of_source["reached"]) == (0.26, False)
    assert len(rows) == len(rivals.READERS)  # there is no ext4 without large folios


def test_what_was_pushed_is_compared_with_a_filesystem_that_has_such_pages_too():
    rows = beside_others("4 KB", source=100, journalled=80, bindfs=10, ram=26, pushed=76.8, page_cache=72)
    pushed = rows["clairfs, first touch of what a plan pushed / ext4 without large folios, warm, 1"]
    assert (pushed["value"], pushed["reached"]) == (pytest.approx(0.96), True)
    cached = rows["clairfs, page cache / ext4 without large folios, warm, 1"]
    assert (cached["value"], cached["reached"]) == (pytest.approx(0.9), None)


PRINTED = {
    "plan_epoch/one_node_one_rank": {"real_time": 150},  # ms
    "reload_index": {"real_time": 11},
    "epoch_of/files/iterations:5": {"real_time": 100, "bytes/sample": 20},
    "epoch_of/records/iterations:5": {"real_time": 120, "bytes/sample": 30},
    "misses/real_time/threads:1": {"real_time": 2500, "items_per_second": 400_000},  # ns
    "misses/real_time/threads:2": {"real_time": 2000, "items_per_second": 500_000},
    "begins_when_memory_comes_free/real_time": {"real_time": 3000},
}


@pytest.fixture
def engines(monkeypatch):
    """What the programs print of the benchmarks that are asked for."""
    monkeypatch.setattr(engine, "benchmarks", lambda path, pattern: {k: v for k, v in PRINTED.items() if re.match(pattern, k)})
    return benchlib.Samples()


def test_records_are_planned_beside_files(engines):
    engine.planning_round("plan_bench", engines)
    (row,) = engine.planning_table(engines).rows
    assert (row["figure"], row["value"]) == ("one node one rank", 0.15)
    rows = {row["figure"]: row for row in engine.records_table(engines).rows}
    assert rows["saved index of the records, reloaded"]["value"] == 0.011
    assert rows["an epoch of records: time"]["value"] == 0.12
    assert rows["records / files: time"]["reached"] is True
    assert (rows["records / files: memory"]["value"], rows["records / files: memory"]["reached"]) == (1.5, False)


def test_threads_that_miss_tell_how_long_a_miss_takes(engines):
    engine.cache_round("cache_bench", engines)
    rows = {row["figure"]: row["value"] for row in engine.cache_table(engines).rows}
    assert rows["1 thread: misses"] == 400_000
    assert rows["1 thread: latency of a miss"] == 2.5  # us
    assert rows["2 threads: latency of a miss"] == 4
    assert rows["a fetch that waits for memory: begins after"] == 3
@pytest.mark.parametrize(
    ("speed", "tier", "seconds"), [(1, 2, 3), (1, 0.5, 3), (1, 0, 3), (1.5, 2, 7 / 3), (1.5, 0.5, 7 / 3), (1.5, 0.25, 2.5), (1.5, 0, 3)]
)
def test_only_the_first_epoch_of_fast_computing_has_to_wait_for_the_pfs(speed, tier, seconds):
    size = packed.BANDWIDTH
    assert packed.least_seconds(size, tier * size, speed) == pytest.approx(seconds)


def test_the_header_of_rows_is_one_that_numpy_reads():
    numpy = pytest.importorskip("numpy")
    for rows in (1, 800, 10**6):
        header = benchlib.npy_header(rows, 3)
        assert len(header) % 64 == 0
        assert numpy.load(io.BytesIO(header + bytes(3 * rows))).shape == (rows, 3)


def test_first_touches_stand_beside_a_filesystem_with_single_pages_where_there_is_one():
    samples = benchlib.Samples()
    for label in ("raw mmap 8", "npy pread 1"):
        for where, rate in (("source", 100), ("pushed", 80), ("ram", 2)):
            samples.add(f"{label} {where}", rate)
            samples.add(f"{label} {where} faults", 0.03)
            samples.add(f"{label} {where} switches", 0.04)
        samples.add(f"{label} reads", 0.01)
        samples.add(f"{label} suspensions", 0)
    samples.add("raw mmap 8 journalled", 64)
    rows = {row["figure"]: row for row in packed.touch_table(RECORDS, samples).rows}
    mapped, read = rows["raw mmap, 8 processes: pushed / source"], rows["npy pread, 1 process: pushed / source"]
    assert (mapped["value"], mapped["reached"], mapped["note"]) == (0.8, False, "1.25 of ext4 without large folios")
    assert (read["value"], read["reached"], read["note"]) == (0.8, True, "")
    assert rows["raw mmap, 8 processes: major faults a record"]["reached"] is False
    assert rows["raw mmap, 8 processes: context switches a record"]["reached"] is True


def test_first_touch_is_measured_when_nothing_is_pushed_any_more(monkeypatch):
    """0.95 are ahead at second 2, and all at second 3, of a clock that goes on by a quarter at each look."""
    clock = {"now": 0.0}

    def look(mount):
        clock["now"] += 0.25
        return {"ahead": 900 if clock["now"] < 2 else 950 if clock["now"] < 3 else 1000}

    monkeypatch.setattr(packed, "planned", look)
    monkeypatch.setattr(packed, "time", types.SimpleNamespace(monotonic=lambda: clock["now"]))
    packed.wait_until_still(None, 1000)
    assert clock["now"] == 4


RECORDS = types.SimpleNamespace(count=1000, record=packed.BANDWIDTH // 1000, size=packed.BANDWIDTH)


def epochs_of_records(speed):
    """The rows where the best of the others takes 2.8 s, clairfs with a plan 2.4 s, and all read S. The reader itself takes
    a twentieth of computing."""
    samples = benchlib.Samples()
    samples.add(f"{packed.key(speed, packed.WARM)} epoch", 1.05 / speed)
    for label in [*packed.OTHERS, *packed.tiers_of(speed)]:
        seconds = 2.8 if label == "workers" else 2.9 if label in packed.OTHERS else 2.4
        samples.add(f"{packed.key(speed, label)} seconds", seconds)
        samples.add(f"{packed.key(speed, label)} first", 1.1)
        samples.add(f"{packed.key(speed, label)} bytes", 1)
        samples.add(f"{packed.key(speed, label)} suspensions", 0)
    return {row["figure"]: row for row in packed.epochs_table(RECORDS, speed, samples).rows}


def test_epochs_of_records_are_compared_with_the_best_of_the_others_where_computing_is_faster_than_the_pfs():
    rows = epochs_of_records(1.5)
    for tier in packed.TIERS:
        assert rows[f"4 DataLoader workers: time / with a plan, {tier}"]["value"] == pytest.approx(2.8 / 2.4)
        assert rows[f"4 DataLoader workers: time / with a plan, {tier}"]["reached"] is False
        assert rows[f"with a plan, {tier}: time / bound"]["value"] == pytest.approx(2.4 / (7 / 3))
        assert rows[f"with a plan, {tier}: time / bound"]["reached"] is True
    assert rows["with a plan, RAM tier 0.5 S: PFS bytes / bound"]["value"] == 0.5
    assert rows["with a plan, RAM tier 0.25 S, NVMe the rest: PFS bytes / bound"]["at_most"] == 1.05
    beside = {row["reached"] for figure, row in rows.items() if "KiB: time" in figure or "KiB: PFS" in figure}
    assert beside == {None}
    level = epochs_of_records(1)
    assert not any("NVMe" in figure for figure in level)
    assert level["4 DataLoader workers: time / with a plan, RAM tier 2 S"]["reached"] is None
    assert level["with a plan, RAM tier 2 S: time / bound"]["value"] == pytest.approx(0.8)


@pytest.mark.parametrize(("speed", "bound"), [(1, 3 * 1.05), (1.5, 1 + 2 * 0.7)])
def test_what_the_reader_of_records_takes_itself_counts_where_it_does_not_wait_for_the_pfs(speed, bound):
    rows = epochs_of_records(speed)
    assert rows["the source's page cache: time / computing"]["value"] == pytest.approx(1.05)
    for tier in packed.TIERS:
        assert rows[f"with a plan, {tier}: time / bound and the reader's own time"]["value"] == pytest.approx(2.4 / bound)
        assert rows[f"with a plan, {tier}: time / bound and the reader's own time"]["reached"] is None
        assert rows[f"with a plan, {tier}: first epoch / what the PFS takes"]["value"] == pytest.approx(1.1)


def rungs(processes):
    """The ladder's rows where LMDB reads 200 records a second of 1,000 that the PFS can deliver, or 10, and clairfs 900."""
    samples = benchlib.Samples()
    for name, rate in {"direct ahead": 200, "direct random": 10, **dict.fromkeys(packed.RUNGS, 900)}.items():
        figures = {"rate": rate, "faults": 0.03, "switches": 0.04, "seeks": 100, "mean": 100}
        for figure, value in figures.items():
            samples.add(f"{name} {packed.label_of(RECORDS, processes)} {figure}", value)
    samples.add(f"coalesced {RECORDS.record} bytes rate", 700)
    return {row["figure"]: row for row in packed.ladder_table(RECORDS, processes, samples).rows}


def test_the_whole_ladder_has_targets_that_the_bandwidth_allows():
    rows, whole = rungs(8), packed.RUNGS["whole"].text
    assert rows["64 MiB a read, by one for all: records/s"]["value"] == 700
    assert "allows 5 times" in rows["LMDB directly: records/s"]["note"]
    assert rows[f"{whole}: times LMDB directly"]["reached"] is None
    assert rows[f"{whole}: times LMDB with MADV_RANDOM"]["value"] == 90
    assert rows[f"{whole}: times LMDB with MADV_RANDOM"]["reached"] is True
    assert rungs(4)[f"{whole}: times LMDB with MADV_RANDOM"]["reached"] is None
    assert rows[f"{whole}: seeks a 4 MiB"]["value"] == pytest.approx(100 / (1e8 / 2**22))
    reached = {figure: rows[f"{whole}: {figure}"]["reached"] for figure in ("seeks a 4 MiB", "a read of the PFS")}
    assert reached == {"seeks a 4 MiB": False, "a read of the PFS": False}
    assert rows[f"{whole}: major faults a record"]["reached"] is False
    assert rows[f"{whole}: context switches a record"]["reached"] is True
    assert all(row["reached"] is None for figure, row in rows.items() if not figure.startswith(f"{whole}:"))


def test_each_chart_becomes_a_file_that_the_report_shows(tmp):
    charts = [
        benchlib.bars("Bars", "files/s", ["one & two", "three"], {"new": [1, 2], "old": [0.5, None]}, mark=(1, "bound")),
        benchlib.lines("Lines", "files", "s", [10, 100], {"time": [0.1, 2]}, log=True),
    ]
    write_part(tmp, "b1-epochs", [], charts)
    text, _ = made(tmp)
    for number, words in ((1, {"one & two", "bound", "new"}), (2, {"time", "files"})):
        name = f"b-epochs-{number}.svg"
        assert f"]({name})" in text
        drawn = ElementTree.parse(tmp / name).getroot()
        texts = {element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")}
        assert words <= texts


def shapes(svg, name):
    return list(ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{name}"))


def test_bars_are_as_long_as_their_values_and_gaps_are_not_drawn():
    chart = benchlib.bars("t", "l", ["a", "b", "c"], {"only": [1, 4, None]})
    widths = [float(bar.get("width")) for bar in shapes(svgplot.draw(chart), "rect")[1:]]  # after the paper
    assert len(widths) == 2
    assert widths[1] == pytest.approx(4 * widths[0], rel=0.01)


def test_a_decade_is_as_high_as_the_next_on_a_logarithmic_axis():
    chart = benchlib.lines("t", "x", "y", [1, 2, 3], {"only": [1, 10, 100]}, log=True)
    heights = [float(point.get("cy")) for point in shapes(svgplot.draw(chart), "circle")]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2])
    assert heights[0] > heights[2]


def test_nothing_is_drawn_beside_the_page():
    chart = benchlib.bars("t", "l", ["a", "b"], {"only": [1, 700], "other": [3, 4]}, mark=(2, "bound"))
    for bar in shapes(svgplot.draw(chart), "rect"):
        assert float(bar.get("x", 0)) + float(bar.get("width")) <= svgplot.WIDTH


def test_processor_time_is_not_counted_in_ticks():
    before = time.process_time()
    now = benchlib.cpu_seconds(os.getpid())
    assert before <= now <= time.process_time()


BENCH = pathlib.Path(__file__).parent
RUN = (BENCH / "run.sh").read_text()
SCRIPTS = re.findall(r'^  "[a-e]\d-[a-z]+ +([a-z_]+\.py)', RUN, re.MULTILINE)


def test_all_programs_that_a_script_runs_are_built_first():
    programs = {path.stem for path in (BENCH / "programs").glob("*.cc")}
    named = {word for script in SCRIPTS for word in re.findall(r"\b[a-z]+_[a-z]+\b", (BENCH / script).read_text())}
    built = set(re.findall(r"\w+", " ".join(re.findall(r"-t ([\w -]+)", RUN))))
    assert {"plan_bench", "cache_bench", "sampler_bench"} <= programs & named
    assert programs & named <= built


def test_all_scripts_of_the_report_are_in_the_index():
    index = (BENCH / "README.md").read_text()
    assert len(SCRIPTS) > 15 and all(f"`{script}" in index for script in SCRIPTS)
