"""What the README says that a test shows: that test is there."""

import fnmatch
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
SECTIONS = {
    TESTS.parent / "README.md": ("## What is promised", "## Security"),
    TESTS / "faults/README.md": ("# faults",),
}
FILES = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*") if path.suffix in (".py", ".cc")}


def rows(document, heading):
    """Of each row what its last column names."""
    section = document.read_text().split(heading, 1)[1].split("\n## ", 1)[0]
    cells = [line.rsplit("|", 2)[1] for line in section.splitlines() if line.startswith("|")]
    return [re.findall(r"`([^`]+)`", cell) for cell in cells]


def files_called(token):
    return [path for name, path in FILES.items() if name == token.removeprefix("tests/") or name.endswith("/" + token)]


def has_test(files, pattern):
    names = {name for file in files for name in re.findall(r"^def test_(\w+)", file.read_text(), re.M)}
    return bool(fnmatch.filter(names, pattern))


def missing(tokens):
    """A test is looked for in the file named before it in its row, if one is."""
    files = FILES.values()
    for token in tokens:
        if token.endswith("/"):
            there = (TESTS / token).is_dir()
        elif "." in token:
            there = files = files_called(token)
        else:
            there = has_test(files, token)
        if not there:
            yield token


@pytest.mark.parametrize("document, heading", [(d, h) for d, headings in SECTIONS.items() for h in headings])
def test_every_test_that_is_named_exists(document, heading):
    found = rows(document, heading)
    assert sum(map(len, found)) > 10
    assert not [token for tokens in found for token in missing(tokens)]
