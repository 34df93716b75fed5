"""Adds up JUnit reports of ctest and pytest: prints "PASSED FAILED SKIPPED".

    totals.py REPORT[,AGAIN]...

A report that is missing or broken counts as one failure: its program did not get through. AGAIN is the report of a second
run of what had failed in REPORT; it may be missing. What passes there counts as passed, and is named on standard error.
"""

import sys
import xml.etree.ElementTree


def outcome(case):
    """passed, failed or skipped, for one <testcase>."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    if case.get("status") == "notrun":  # ctest: the program is missing, or it asked to be skipped
        return "skipped" if "SKIP" in skipped.get("message", "") else "failed"
    return "skipped" if skipped is not None or case.get("status") == "disabled" else "passed"


def outcomes(path):
    """{test: its outcome}. pytest reports a test twice that fails and then fails to clean up: failed it is."""
    found = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if found.get(name) != "failed":
            found[name] = outcome(case)
    return found


def main(reports):
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for report in reports:
        path, _, again = report.partition(",")
        try:
            first = outcomes(path)
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            print(f"no report of the tests: {error}", file=sys.stderr)
            totals["failed"] += 1
            continue
        try:
            second = outcomes(again) if again else {}
        except (OSError, xml.etree.ElementTree.ParseError):
            second = {}
        for name, result in first.items():
            if result == "failed" and second.get(name) == "passed":
                print(f"UNSTEADY: {name} failed once and passed when it ran again", file=sys.stderr)
                result = "passed"
            totals[result] += 1
    print(totals["passed"], totals["failed"], totals["skipped"])


if __name__ == "__main__":
    main(sys.argv[1:])
