"""What the documents name is there: tests that show a promise, functions of a walk, threads, files."""

import fnmatch
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
SECTIONS = {
    TESTS / "README.md": ("## What is promised", "## Security"),
    TESTS / "faults/README.md": ("# faults",),
}
FILES = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*") if path.suffix in (".py", ".cc")}

ROOT = TESTS.parent
WALKS = {"fs/README.md": "## A READ that misses", "plan/README.md": "## From a seed to the page cache"}
FOLDERS = ("cache", "plan", "net", "fs", "mount-helper")
# What a README says of how something is added: whole sections, or a paragraph.
GUIDES = {"plan/README.md": r"^## To add .*?(?=^## (?!To add))", "cache/README.md": r"^To add .*?\n\n",
          "net/README.md": r"^To add .*?\n\n"}


def rows(document, heading, column=-1):
    """Of each row what one column names; the last one, unless another is asked for."""
    section = document.read_text().split(heading, 1)[1].split("\n## ", 1)[0]
    cells = [line.strip("|").split("|")[column] for line in section.splitlines() if line.startswith("|")]
    return [re.findall(r"`([^`]+)`", cell) for cell in cells]


def named(document, heading, columns):
    return [token for column in columns for row in rows(document, heading, column) for token in row]


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


def source_text():
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cc")]
    return "\n".join(path.read_text() for path in sources)


@pytest.mark.parametrize("document, heading", WALKS.items())
def test_functions_of_the_walks_exist(document, heading):
    found = [token for token in named(ROOT / document, heading, (2, 3)) if re.fullmatch(r"[\w:]+", token)]
    assert len(found) > 20
    words = set(re.findall(r"\w+", source_text()))
    assert not [token for token in found if not set(token.split("::")) <= words]


def is_there(path, folder):
    """Whether a README of the folder names a file or folder by it, maybe without the ending of a source."""
    places = (ROOT / path, ROOT / folder / path)
    return any(place.exists() or place.with_name(place.name + ".h").exists() for place in places)


@pytest.mark.parametrize("document, pattern", GUIDES.items())
def test_what_the_guides_name_is_there(document, pattern):
    (guide,) = re.findall(pattern, (ROOT / document).read_text(), re.M | re.S)
    tokens = re.findall(r"`([^`]+)`", guide)
    paths = [token for token in tokens if re.fullmatch(r"[a-z][\w.-]*/[\w./-]*", token)]
    names = [token.removesuffix("()") for token in tokens if re.fullmatch(r"k[A-Z]\w+|\w+\(\)", token)]
    assert len(paths) + len(names) >= 7
    assert not [path for path in paths if not is_there(path, document.split("/")[0])]
    assert not set(names) - set(re.findall(r"\w+", source_text()))


def test_threads_of_a_mount_are_those_of_the_sources():
    listed = {re.sub(r"-(N|\d)$", "", token) for token in named(ROOT / "mount-helper/README.md", "## Threads of a mount", (0,))}
    text = source_text()
    assert not [name for name in listed if f'"{name}"' not in text]
    made = set(re.findall(r'(?:[Tt]hread_?>?|Tasks>|planner_|lookups_|answers_)[({]"([\w-]+)"', text))
    assert len(made) > 10
    assert not made - listed


def test_readme_is_short_and_names_what_exists():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 130
    assert not [line for line in lines if len(line) > 116]
    paths = re.findall(r"\b(?:examples|tests|cache|plan|net|fs|mount-helper)/[\w./-]*\w", "\n".join(lines))
    assert len(paths) > 10
    assert not [path for path in paths if not (ROOT / path).exists()]
