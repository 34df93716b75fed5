#!/usr/bin/python3
"""Makes the report of a benchmark run from what its scripts wrote.

    tests/bench/report.py DIR [--before REPORT_JSON]

Reads DIR/data/*.json (the --json of a script; the first letter of the name is the section, the names' order that of
the report) and DIR/data/*.failed (why a script gave no figures); writes DIR/REPORT.md, DIR/report.json and an SVG for
each chart. With --before the figures of an earlier report stand beside those of the same name. Nothing is measured here.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import time

import benchlib
import clairmount
import svgplot

SECTIONS = {
    "a": "Frontend: reading through the mount",
    "b": "Training epochs on an emulated parallel filesystem, one node",
    "c": "The same on several nodes",
    "d": "PyTorch on a real dataset",
    "e": "Cost, and how it grows",
}


def first_line(*command, pattern=r"(\S.*)"):
    """What `pattern` finds in a program's output, or why there is nothing."""
    if not shutil.which(str(command[0])):
        return "not installed"
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(pattern, run.stdout + run.stderr)
    return " ".join(found[1].split()) if found else "unknown"


def machine():
    """What the figures depend on. No host name: a report may be shown to anybody."""
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    source = tempfile.gettempdir()
    return {
        "CPU": cpu[1] if cpu else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.1f} GiB",
        "kernel": platform.release(),
        "filesystem of the source": first_line("findmnt", "-n", "-o", "FSTYPE,OPTIONS", "-T", source),
    }


def versions():
    torch = first_line("/usr/bin/python3", "-c", "import torch; print(torch.__version__)", pattern=r"^(\d\S*)")
    return {
        "clairfs": first_line(clairmount.binary(), "--version", pattern=r"(\d\S+)"),
        "commit": first_line("git", "-C", clairmount.REPO, "describe", "--always", "--dirty"),
        "libfuse": first_line("pkg-config", "--modversion", "fuse3"),
        "MPICH": first_line("mpiexec", "--version", pattern=r"Version:\s*(\S+)"),
        "bindfs": first_line("bindfs", "--version", pattern=r"(\d\S+)"),
        "mergerfs": first_line("mergerfs", "--version", pattern=r"(\d\S+)"),
        "rclone": first_line("rclone", "version", pattern=r"v(\d\S+)"),
        "torch": torch,
    }


def collect(data):
    """The sections in their order, each a list of parts. A part that broke down has `failed`, and what it found before."""
    sections = {}
    data = pathlib.Path(data)
    for stem in sorted({path.stem for path in data.iterdir() if path.suffix in (".json", ".failed")}):
        part = {"name": stem.partition("-")[2], "tables": {}, "charts": [], "skipped": [], "rounds": {}, "run": None}
        figures, failed = data / f"{stem}.json", data / f"{stem}.failed"
        if figures.exists():
            part |= json.loads(figures.read_text(encoding="utf-8"))
        if failed.exists():
            part["failed"] = failed.read_text(encoding="utf-8").strip()
        sections.setdefault(stem[0], []).append(part)
    return [{"key": key, "title": SECTIONS.get(key, key), "parts": parts} for key, parts in sorted(sections.items())]


def rows_of(sections):
    """(section, part, table's title, row) of every figure."""
    for section in sections:
        for part in section["parts"]:
            for title, rows in part["tables"].items():
                for row in rows:
                    yield section, part, title, row


def misses_of(sections):
    """Figures that miss their target, the worst first."""
    found = []
    for section, part, title, row in rows_of(sections):
        if row["reached"] is False:
            found.append({"section": section["key"], "part": part["name"], "table": title, **row, "off": off_target(row)})
    return sorted(found, key=lambda miss: -miss["off"])


def off_target(row):
    """By which factor it misses; a value beside a target of 0 counts as itself plus one."""
    value = row["value"]
    if row["at_least"] is not None and value < row["at_least"]:
        return row["at_least"] / value if value > 0 else float("inf")
    return value / row["at_most"] if row["at_most"] else value + 1


def rounds_text(part):
    counts = sorted({len(values) for values in part["rounds"].values()})
    return "" if not counts else f"{counts[0]} rounds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} rounds"


# Markdown


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table_lines(header, rows):
    yield "| " + " | ".join(map(cell, header)) + " |"
    yield "|" + "|".join("---:" if name in ("measured", "before") else "---" for name in header) + "|"
    for row in rows:
        yield "| " + " | ".join(map(cell, row)) + " |"
    yield ""


def target(row):
    if row["at_least"] is not None:
        return f"at least {benchlib.number(row['at_least'])}"
    return "" if row["at_most"] is None else f"at most {benchlib.number(row['at_most'])}"


def figures(rows, before):
    """Columns that would be empty are left out."""
    columns = {
        "figure": [row["figure"] for row in rows],
        "measured": [benchlib.measured(row) for row in rows],
        "before": [benchlib.measured(before[row["figure"]]) if row["figure"] in before else "" for row in rows],
        "target": [target(row) for row in rows],
        "reached": [{None: "", True: "yes", False: "**NO**"}[row["reached"]] for row in rows],
        "remark": [benchlib.with_ratio(row) for row in rows],
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    return table_lines(columns, zip(*columns.values()))


def part_lines(part, before):
    if "failed" in part:
        yield from (f"**{part['name']} broke down:** {part['failed']}. What it found before is below, if anything.", "")
    for skipped in part["skipped"]:
        yield from (f"Skipped: {skipped['what']}: {skipped['why']}", "")
    for title, rows in part["tables"].items():
        yield from (f"### {title}", "")
        yield from figures(rows, before.get(title, {}))
    for chart in part["charts"]:
        yield from (f"![{chart['title']}]({chart['file']})", "")
    run = part["run"]
    if not run:
        return
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run["begin"]))
    size = "quick" if run["quick"] else "full"
    yield from (f"*{part['name']}: {', '.join(filter(None, [size, rounds_text(part)]))}; {when} UTC, {run['seconds']:.0f} s.*", "")


def markdown(report, before=None):
    """`before`: {title: {figure: row}} of an earlier report."""
    yield from ("# clairfs: benchmark report", "")
    yield "Figures are medians over interleaved rounds; ratios are medians of the ratios within a round, to the baseline"
    yield from ("named beside them. A target is a figure that the project means to reach.", "")
    for name in ("machine", "versions"):
        yield from table_lines((name, ""), report[name].items())
    yield from ("## Targets missed", "")
    if report["misses"]:
        rows = [(m["section"], m["table"], m["figure"], benchlib.measured(m), target(m), m["note"]) for m in report["misses"]]
        yield from table_lines(("", "table", "figure", "measured", "target", "remark"), rows)
    else:
        yield from ("None.", "")
    yield from (f"{report['reached']} of {report['reached'] + len(report['misses'])} targets were reached.", "")
    for section in report["sections"]:
        yield from (f"## {section['key']}. {section['title']}", "")
        for part in section["parts"]:
            yield from part_lines(part, before or {})


def make(folder, before=None):
    """Writes the report of `folder`; returns it."""
    folder = pathlib.Path(folder)
    sections = collect(folder / "data")
    for section in sections:
        for part in section["parts"]:
            for number, chart in enumerate(part["charts"], 1):
                chart["file"] = f"{section['key']}-{part['name']}-{number}.svg"
                (folder / chart["file"]).write_text(svgplot.draw(chart), encoding="utf-8")
    reached = sum(row["reached"] is True for *_, row in rows_of(sections))
    report = {"machine": machine(), "versions": versions(), "misses": misses_of(sections), "reached": reached}
    report["sections"] = sections
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (folder / "REPORT.md").write_text("\n".join(markdown(report, before)).rstrip() + "\n", encoding="utf-8")
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--before", metavar="REPORT_JSON", help="an earlier report.json to compare with")
    given = parser.parse_args()
    before = {}
    if given.before:
        earlier = json.loads(pathlib.Path(given.before).read_text(encoding="utf-8"))
        for _, _, title, row in rows_of(earlier["sections"]):
            before.setdefault(title, {})[row["figure"]] = row
    report = make(given.folder, before)
    misses = len(report["misses"])
    print(f"{given.folder}/REPORT.md: {report['reached']} of {report['reached'] + misses} targets reached")


if __name__ == "__main__":
    main()
