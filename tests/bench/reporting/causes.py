"""Causes that were found of targets missed, and with what. A miss that is not here says that its cause is not known."""

import re

FOLIOS = (
    "The kernel keeps a FUSE mount's pages one by one, and the source's ext4 has large folios, which are read faster: "
    "copying 110 KB takes 12 us from single pages and 8 from large ones (perf). What `rivals` and `large` read "
    "from an ext4 without large folios shows how much that is."
)

# (table, figure, cause): patterns found in the title and in the figure's name.
CAUSES = (
    ("^Shuffled open|^Sequential reads", "^page cache / source$", FOLIOS),
    (
        "pushed ahead",
        "^first touch, pushed .* / source$",
        FOLIOS + " Besides, a page's second use moves it to the kernel's list of active pages, and pushing it counts as the "
        "first: 16 % of a first touch (perf). Together they are most of the difference; the rest is not known.",
    ),
    (
        "^PFS bytes / ",
        "NVMe, paced$",
        "The tiers hold less than D: the NVMe tier's index and the block maps of its files, whole pages, and the 256th part "
        "that stays free are taken from the capacity given. The remark has the bytes over the least for what the tiers can "
        "hold, by the sizes of the segment files.",
    ),
    (
        "^PFS bytes / ",
        "NVMe, at full speed$",
        "In part as when paced: the tiers hold less than D. What the remark has above 1 for what the tiers can hold is not "
        "known.",
    ),
    (
        "epochs of .* a cache of",
        "with a plan, one reader: stall, later epochs$",
        "A batch of pushed pages takes 1 to 2 ms longer to read than one of the source's warm page cache, 0.5 to 1 % of an "
        "epoch here, though no read waits: the row below has what did. Besides, kernels that take pushed pages back before "
        "they are read (DAMON does it on some machines) make some reads go to the PFS, where they wait behind what is "
        "under way (16 operations: 80 ms).",
    ),
    (
        "epochs of .* a cache of",
        "4 workers: stall, epoch 0 after the first window$",
        "Workers that wait at the same time are served alike, so their batches arrive together instead of one after the "
        "other. The emulated PFS is saturated all the time (its counters, every 100 ms), and one reader on it stalls 0.1 %.",
    ),
    (
        "epochs of .* records of",
        "^with a plan, .*: time / bound$",
        "By computation, chunks of 128 KiB, which tiers keep as a whole, make the first epoch 1.28 times as long as the PFS "
        "takes for the records where computing takes as long, and 1.13 times where it takes two thirds; the rows of smaller "
        "chunks show it. The rest is mostly what the reader takes itself, which the second row has in the bound, and in a "
        "short run the READs that tell where the reader is: one for nine records in a window of 8 MiB.",
    ),
    (
        "^First touch of .* records",
        "pushed / source$",
        FOLIOS + " The remark has the rate beside an ext4 without large folios, where it was measured.",
    ),
    (
        "^First touch of .* records",
        "random, [48] processes: pushed / RAM tier without a plan$",
        "Faults of several processes overlap: the RAM tier serves four and eight of them four times as much as one, where the "
        "page cache gives two cores twice as much.",
    ),
    (
        "^A short job of",
        "^N·D = 1.[05] S: total / lower bound$",
        "The bound is the PFS's time for the first epoch. Nothing computes, so later epochs take what the processors need: three "
        "quarters of the bytes go from node to node, and all nodes share them.",
    ),
    (
        "epochs of .* shards",
        "^with a plan, RAM tier [12] S: (time / bound|slowest epoch / its bound)$",
        "0.04 of it is the workers' own time beside computing, which the row of the source's own directory has, too: their "
        "start, and the last batches of an epoch.",
    ),
    (
        "nodes on one PFS",
        "total / lower bound$",
        "The bound has no beginning: the PFS needs 0.35 s for the first batches of four nodes, during which nobody computes. "
        "The row of first batches says how much longer they took.",
    ),
    (
        "^Model and reality",
        "N·D = 0: local, off by$",
        "The memory of chunks on their way keeps what it held last and so is a small cache (16 MiB a node here), which the "
        "model does not have. As many bytes are missing from what the PFS was asked for, by its own count.",
    ),
)


def cause_of(table, figure):
    """None if it is not known."""
    for in_table, in_figure, cause in CAUSES:
        if re.search(in_table, table) and re.search(in_figure, figure):
            return cause
    return None
