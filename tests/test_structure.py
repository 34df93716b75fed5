"""The folders of the sources: each may use only those to its left here. CMake keeps the order of the top ones.

A folder that is new, or an include against the order, fails; so does a folder that has grown so large that nobody finds
anything in it. Folders below those that are listed need no place, but they too may not use each other in a ring.
"""

import graphlib
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent

# "." are the sources that lie in the top folder itself.
ORDER = {
    "cache": "base tasks io catalog nvme source memory chunks".split(),
    "plan": ("random samplers spec formats sequence placement tracking inference run retention staging . "
             "simulator offline").split(),
    "net": "transport mpi meeting group peers .".split(),
    "fs": "base page_cache control session ops .".split(),
    "mount-helper": "mounts options log serve client commands inspect .".split(),
}
TOPS = {"cache": [], "plan": ["cache"], "net": ["cache", "plan"], "fs": ["cache", "plan"],
        "mount-helper": ["cache", "plan", "net", "fs"]}
MOST_FILES = 24  # about twenty: as many as one looks through without searching


def sources(top, suffixes=(".h", ".cc")):
    return sorted(path.relative_to(ROOT) for path in (ROOT / top).rglob("*") if path.suffix in suffixes)


def place(path):
    """(top, folder) of a source: ("cache", "io"), or ("net", ".") for one in the top folder itself."""
    parts = pathlib.PurePath(path).parts
    return parts[0], parts[1] if len(parts) > 2 else "."


def against_order(user, used):
    """Whether a source at place `user` must not include one at place `used`."""
    if user[0] != used[0]:
        return used[0] not in TOPS[user[0]]
    order = ORDER[user[0]]
    return order.index(used[1]) > order.index(user[1])


def includes(path):
    return re.findall(r'^#include "([^"]+)"', (ROOT / path).read_text(), re.MULTILINE)


def includes_between_folders():
    """Of each (folder, folder that it uses) the includes that say so."""
    found = {}
    for path in (path for top in ORDER for path in sources(top)):
        for used in includes(path):
            folders = str(path.parent), str(pathlib.PurePath(used).parent)
            if place(used)[0] in TOPS and folders[0] != folders[1]:
                found.setdefault(folders, []).append(f"{path} includes {used}")
    return found


def ring(pairs):
    """Folders each of which uses the one before it, the first one at the end again; none if there is no such ring."""
    uses = {}
    for user, used in pairs:
        uses.setdefault(user, set()).add(used)
    try:
        graphlib.TopologicalSorter(uses).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_the_rule_itself():
    assert against_order(("cache", "io"), ("cache", "nvme")) and not against_order(("cache", "nvme"), ("cache", "io"))
    assert against_order(("fs", "ops"), ("net", ".")) and not against_order(("net", "."), ("plan", "."))
    assert not ring([("x", "x/a"), ("x", "x/b"), ("x/b", "x/a")])
    found = ring([("x", "x/a"), ("x/b", "x"), ("x/a", "x/b"), ("x/b", "x/c")])
    assert set(zip(found[1:], found)) == {("x", "x/a"), ("x/a", "x/b"), ("x/b", "x")}


def test_every_folder_has_its_place():
    for top, order in ORDER.items():
        assert {place(path)[1] for path in sources(top)} == set(order), top


def test_no_include_runs_against_the_order():
    found = [f"{path} includes {used}" for top in ORDER for path in sources(top) for used in includes(path)
             if place(used)[0] in TOPS and against_order(place(path), place(used))]
    assert not found, "\n".join(found)


def test_no_folders_use_each_other_in_a_ring():
    found = includes_between_folders()
    assert len(found) > 100
    folders = ring(found)
    assert not folders, "\n".join(line for pair in zip(folders[1:], folders) for line in found[pair])


def test_every_include_says_where_it_is():
    missing = [f"{path} includes {used}" for top in [*ORDER, "tests"] for path in sources(top)
               for used in includes(path) if not (ROOT / used).is_file()]
    assert not missing, "\n".join(missing)


def test_no_folder_has_too_many_files():
    sizes = {}
    for top in [*ORDER, "tests"]:
        for path in sources(top, (".h", ".cc", ".py", ".sh")):
            sizes[path.parent] = sizes.get(path.parent, 0) + 1
    assert not {str(folder): count for folder, count in sizes.items() if count > MOST_FILES}
