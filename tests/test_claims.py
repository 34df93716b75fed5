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
FILES = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*") if path.suffix in (".py", ".cc")}
NAMES = {name for file in TESTS.glob("*/test_*.py") for name in re.findall(r"^def test_(\w+)", file.read_text(), re.M)}


def claims(document, heading):
    section = document.read_text().split(heading, 1)[1].split("\n## ", 1)[0]
    rows = [line.rsplit("|", 2)[1] for line in section.splitlines() if line.startswith("|")]
    assert len(rows) > 5
    return [token for row in rows for token in re.findall(r"`([^`]+)`", row)]


def is_there(token):
    if token.endswith("/"):
        return (TESTS / token).is_dir()
    if "." in token:
        return any(file == token.removeprefix("tests/") or file.endswith("/" + token) for file in FILES)
    return bool(fnmatch.filter(NAMES, token))


@pytest.mark.parametrize("document, heading", [(d, h) for d, headings in SECTIONS.items() for h in headings])
def test_every_test_that_is_named_exists(document, heading):
    tokens = claims(document, heading)
    missing = [token for token in tokens if not is_there(token)]
    assert len(tokens) > 10
    assert not missing
