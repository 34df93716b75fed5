"""The folders of the sources: each may use only those to its left here. CMake keeps the order of the top ones.

A folder that is new, or an include against the order, fails; so does a folder that has grown so large that nobody finds
anything in it.
"""

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


def test_the_rule_itself():
    assert against_order(("cache", "io"), ("cache", "nvme")) and not against_order(("cache", "nvme"), ("cache", "io"))
    assert against_order(("fs", "ops"), ("net", ".")) and not against_order(("net", "."), ("plan", "."))


def test_every_folder_has_its_place():
    for top, order in ORDER.items():
        assert {place(path)[1] for path in sources(top)} == set(order), top


def test_no_include_runs_against_the_order():
    found = [f"{path} includes {used}" for top in ORDER for path in sources(top) for used in includes(path)
             if place(used)[0] in TOPS and against_order(place(path), place(used))]
    assert not found, "\n".join(found)


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
