"""Adds up JUnit reports of ctest and pytest: prints "PASSED FAILED SKIPPED".

A report that is missing or broken counts as one failure: its program did not get through.
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


def main(paths):
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for path in paths:
        try:
            cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            print(f"no report of the tests: {error}", file=sys.stderr)
            totals["failed"] += 1
            continue
        for case in cases:
            totals[outcome(case)] += 1
    print(totals["passed"], totals["failed"], totals["skipped"])


if __name__ == "__main__":
    main(sys.argv[1:])
