#!/usr/bin/python3
"""Makes the report of a benchmark run from what its scripts wrote.

    tests/bench/report.py DIR [--before REPORT_JSON]

Reads DIR/data/*.json (the --json of a script; the first letter of the name is the section, the names' order that of
the report) and DIR/data/*.failed (why a script gave no figures); writes DIR/REPORT.md, DIR/report.json and an SVG for
each chart. With --before the figures of an earlier report stand beside those of the same name; a quick run is not compared
with a full one. Nothing is measured here.
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
from reporting import causes, svgplot

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
    found = re.search(pattern, run.stdout + run.stderr) if run.returncode == 0 else None
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
            miss = {"section": section["key"], "part": part["name"], "table": title, **row, "off": off_target(row)}
            found.append(miss | {"cause": causes.cause_of(title, row["figure"])})
    return sorted(found, key=lambda miss: -miss["off"])


def off_target(row):
    """By which factor it misses; a value beside a target of 0 counts as itself plus one."""
    value = row["value"]
    if row["at_least"] is not None and value < row["at_least"]:
        return row["at_least"] / value if value > 0 else float("inf")
    return value / row["at_most"] if row["at_most"] else value + 1


def size_of(run):
    return "quick" if run["quick"] else "full"


def date_of(run, form="%Y-%m-%d"):
    return time.strftime(form, time.gmtime(run["begin"]))


def rounds_text(part):
    counts = sorted({len(values) for values in part["rounds"].values()})
    if not counts:
        return ""
    span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"{span} round{'' if counts == [1] else 's'}"


# An earlier report


def without_numbers(title):
    return re.sub(r"\d[\d.,]*", "#", title)


def earlier_title(title, here, there):
    """The table's title in an earlier report; where that has none of this title, of the only new one and the only old one
    that differ in numbers alone. None if there is no such."""
    if title in there:
        return title
    new, old = (
        [other for other in some if other not in others and without_numbers(other) == without_numbers(title)]
        for some, others in ((here, there), (there, here))
    )
    return old[0] if len(new) == len(old) == 1 else None


class Before:
    """An earlier report beside the sections of this one. Quick and full runs are not compared: their datasets differ."""

    def __init__(self, sections, earlier):
        old = {(section["key"], part["name"]): part for section in earlier["sections"] for part in section["parts"] if part["run"]}
        new = {(section["key"], part["name"]): part for section in sections for part in section["parts"] if part["run"]}
        both = [key for key in new if key in old]
        self.earlier = earlier
        self.runs = [part["run"] for part in old.values()]
        self.refused = [key for key in both if size_of(old[key]["run"]) != size_of(new[key]["run"])]
        self.found = {}  # (section, part, title): (earlier title, {figure: row})
        self.missing = [part for section, part in new if (section, part) not in old]
        for key in both:
            for title in new[key]["tables"] if key not in self.refused else ():
                if name := earlier_title(title, new[key]["tables"], old[key]["tables"]):
                    self.found[*key, title] = name, {row["figure"]: row for row in old[key]["tables"][name]}
                else:
                    self.missing.append(title)

    def text(self):
        sizes, dates = (sorted({what(run) for run in self.runs}) for what in (size_of, date_of))
        text = f"Before: {' and '.join(sizes)}, commit {self.earlier['versions'].get('commit', 'unknown')}, {', '.join(dates)}."
        if self.refused:
            text += f" Not compared, since one of the two is quick and the other full: {', '.join(part for _, part in self.refused)}."
        if self.missing:
            text += f" Not there: {'; '.join(self.missing)}."
        return text


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


def part_lines(section, part, before):
    """`before`: of each of its tables, the title and the rows in an earlier report."""
    if "failed" in part:
        yield from (f"**{part['name']} broke down:** {part['failed']}. What it found before is below, if anything.", "")
    for skipped in part["skipped"]:
        yield from (f"Skipped: {skipped['what']}: {skipped['why']}", "")
    for title, rows in part["tables"].items():
        yield from (f"### {title}", "")
        name, earlier = before.get((section["key"], part["name"], title), (title, {}))
        if name != title:
            yield from (f"Before: {name}", "")
        yield from figures(rows, earlier)
    for chart in part["charts"]:
        yield from (f"![{chart['title']}]({chart['file']})", "")
    run = part["run"]
    if not run:
        return
    what = ", ".join(filter(None, [size_of(run), rounds_text(part)]))
    yield from (f"*{part['name']}: {what}; {date_of(run, '%Y-%m-%d %H:%M')} UTC, {run['seconds']:.0f} s.*", "")


def misses_lines(misses):
    yield from ("## Targets missed", "")
    if not misses:
        yield from ("None.", "")
        return
    known = list(dict.fromkeys(miss["cause"] for miss in misses if miss["cause"]))
    cause = {text: f"cause {number}" for number, text in enumerate(known, 1)} | {None: "cause not known"}
    rows = [(m["section"], m["table"], m["figure"], benchlib.measured(m), target(m), cause[m["cause"]], m["note"]) for m in misses]
    yield from table_lines(("", "table", "figure", "measured", "target", "cause", "remark"), rows)
    if known:
        yield from ("### Causes", "")
        yield from ("Found earlier of misses like these; a greater one may have another cause besides.", "")
        yield from (f"{number}. {text}" for number, text in enumerate(known, 1))
        yield ""


def markdown(report, before=None):
    """`before`: a Before."""
    yield from ("# clairfs: benchmark report", "")
    yield "Figures are medians over interleaved rounds; ratios are medians of the ratios within a round, to the baseline"
    yield "named beside them. What was measured once says so. A target is a figure that the project means to reach."
    yield ""
    for name in ("machine", "versions"):
        yield from table_lines((name, ""), report[name].items())
    if before:
        yield from (before.text(), "")
    yield from misses_lines(report["misses"])
    yield from (f"{report['reached']} of {report['reached'] + len(report['misses'])} targets were reached.", "")
    for section in report["sections"]:
        yield from (f"## {section['key']}. {section['title']}", "")
        for part in section["parts"]:
            yield from part_lines(section, part, before.found if before else {})


def make(folder, earlier=None):
    """Writes the report of `folder`, beside what is in an earlier one; returns it."""
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
    before = Before(sections, earlier) if earlier else None
    if before:
        report["before"] = before.text()
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (folder / "REPORT.md").write_text("\n".join(markdown(report, before)).rstrip() + "\n", encoding="utf-8")
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--before", metavar="REPORT_JSON", help="an earlier report.json to compare with")
    given = parser.parse_args()
    earlier = json.loads(pathlib.Path(given.before).read_text(encoding="utf-8")) if given.before else None
    report = make(given.folder, earlier)
    if earlier:
        print(report["before"])
    misses = len(report["misses"])
    print(f"{given.folder}/REPORT.md: {report['reached']} of {report['reached'] + misses} targets reached")


if __name__ == "__main__":
    main()
