"""What a sanitizer says of a node of a job fails the test, though nobody sees it in how the node does."""

import pytest
from clairjob import clairjob
from clairmount import binary, build_dir, make_tree, sanitizer_reports

DEFECTS = {"race": "ThreadSanitizer: data race", "heap": "AddressSanitizer", "overflow": "runtime error"}


@pytest.mark.parametrize("defect", DEFECTS)
def test_report_of_a_node(tmp, monkeypatch, defect):
    make_tree(tmp / "src", {"a": 100})
    program = tmp / "clairfs"
    program.write_text(f"#!/bin/sh\n{build_dir()}/tests/sanitizers/planted_{defect}\nexec {binary()} \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("CLAIRFS_BIN", str(program))
    with pytest.raises(AssertionError, match=DEFECTS[defect]), sanitizer_reports(), clairjob(tmp / "src", 2):
        pass
