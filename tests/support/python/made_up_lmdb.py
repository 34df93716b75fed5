"""A large LMDB that takes little room: the pages that lead to its records are there, the records themselves are holes.

Written as liblmdb does on 64-bit little-endian machines (format version 1, see plan/formats/lmdb/page.h), and read by it.
"""

import struct

PAGE = 4096
HEADER = 16
BRANCH, LEAF, META = 0x01, 0x02, 0x08  # kinds of pages
BESIDE = 0x01  # of a record: its value lies in pages of its own
INTEGER_KEYS = 0x08  # of the tree of free pages
NOWHERE = 2**64 - 1  # the root of an empty tree
# As in a database of 20-byte keys that came in random order: half as many as there is room for.
LEAF_RECORDS, BRANCH_CHILDREN = 74, 113


def make_lmdb(path, records, size, leaf_records=LEAF_RECORDS, children=BRANCH_CHILDREN):
    """`records` values of `size` zeros with the keys "00000000", "00000001" and so on. A leaf lies before its records, with at
    most `leaf_records` of them, and the branches, of at most `children` pages each, behind all. Returns how many pages of a
    tree there are."""
    assert 0 < records < 10**8 and leaf_records * 26 <= PAGE - HEADER and 3 <= children <= 200
    own = -(-(HEADER + size) // PAGE)  # pages of a record
    with open(path, "wb") as file:

        def write(number, data):
            file.seek(number * PAGE)
            file.write(data)

        level, end = [], 2  # the first key below each page of a level, and its number; the page behind all
        for first in range(0, records, leaf_records):
            numbers = range(first, min(first + leaf_records, records))
            nodes = [record_node(b"%08d" % n, size, end + 1 + own * i) for i, n in enumerate(numbers)]
            write(end, tree_page(end, LEAF, nodes))
            level.append((b"%08d" % first, end))
            end += 1 + own * len(numbers)
        leaves, depth, branches = len(level), 1, 0
        while len(level) > 1:
            below, level = level, []
            for part in evenly(below, children):
                nodes = [child_node(key if i else b"", number) for i, (key, number) in enumerate(part)]
                write(end, tree_page(end, BRANCH, nodes))
                level.append((part[0][0], end))
                end += 1
            depth, branches = depth + 1, branches + len(level)
        tree = struct.pack("<IHHQQQQQ", 0, 0, depth, branches, leaves, own * records, records, level[0][1])
        write(0, meta_page(0, end, struct.pack("<IHHQQQQQ", 0, 0, 0, 0, 0, 0, 0, NOWHERE)))
        write(1, meta_page(1, end, tree))
        file.truncate(end * PAGE)
    return leaves + branches


def evenly(pages, most):
    """In as few parts of at most `most` as will do, so that none is of one page: a branch has two at least."""
    parts = -(-len(pages) // most)
    return [pages[i * len(pages) // parts : (i + 1) * len(pages) // parts] for i in range(parts)]


def record_node(key, size, page):
    return struct.pack("<IHH", size, BESIDE, len(key)) + key + struct.pack("<Q", page)


def child_node(key, page):
    return struct.pack("<Q", page | len(key) << 48) + key


def tree_page(number, kind, nodes):
    """REQUIRES: nodes of an even number of bytes each."""
    places, at = [], PAGE
    for node in nodes:
        at -= len(node)
        places.append(at)
    lower = HEADER + 2 * len(nodes)
    start = struct.pack(f"<QHHHH{len(nodes)}H", number, 0, kind, lower, at, *places)
    return start + bytes(at - lower) + b"".join(reversed(nodes))


def meta_page(number, end, tree):
    """The latest is the one with the larger number, which is that of its transaction, too."""
    free = struct.pack("<IHHQQQQQ", PAGE, INTEGER_KEYS, 0, 0, 0, 0, 0, NOWHERE)
    start = struct.pack("<QHHHH", number, 0, META, 0, 0) + struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, end * PAGE)
    return (start + free + tree + struct.pack("<QQ", end - 1, number)).ljust(PAGE, b"\0")
