"""The place of every row against the real libhdf5: files of all kinds of storage, and what h5py says of them."""

import itertools
import os
import pathlib
import random
import subprocess

import pytest
from clairmount import binary

h5py = pytest.importorskip("h5py")
np = pytest.importorskip("numpy")

PATIENCE = 300


def ask(plan, *options):
    words = [binary(), "plan", "order", f"shuffle=false format=hdf5 {plan}", *options]
    return subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False)


def ranges(plan):
    """[[(offset, length, path)]] of each sample."""
    done = ask(plan, "--ranges")
    assert done.returncode == 0, done.stderr.decode()
    samples = []
    for line in done.stdout.decode().split("\n")[:-1]:
        if not line.startswith("+"):
            samples.append([])
        if line:
            offset, length, path = line.removeprefix("+").split(" ", 2)
            samples[-1].append((int(offset), int(length), path))
    return samples


def refused(plan):
    done = ask(plan)
    assert done.returncode == 1, done
    return done.stderr.decode()


def stored(path, name):
    """[(offset, length)] of what h5py says is stored of each row of a dataset."""
    content = pathlib.Path(path).read_bytes()
    with h5py.File(path, "r") as file:
        data = file[name]
        rows, low = data.shape[0], data.id
        if data.chunks is None:
            row = data.dtype.itemsize * int(np.prod(data.shape[1:]))
            first = low.get_offset()
            return [[] if first is None else [(first + i * row, row)] for i in range(rows)]

        def place(at):
            info = low.get_chunk_info_by_coord(at)
            if info.byte_offset is None:
                return []
            _, raw = low.read_direct_chunk(at)
            # libhdf5 1.10.8 says it without the user block.
            starts = [info.byte_offset, info.byte_offset + file.userblock_size]
            return [next((start, info.size) for start in starts if content[start:start + info.size] == raw)]

        tiles = list(itertools.product(*[range(0, size, step) for size, step in zip(data.shape, data.chunks)][1:]))
        found = []
        for first in range(0, rows, data.chunks[0]):
            pieces = [piece for tile in tiles for piece in place((first, *tile))]
            found += [pieces] * min(data.chunks[0], rows - first)
        return found


def noise(shape, dtype, seed=1):
    return np.random.default_rng(seed).integers(0, 250, shape).astype(dtype)


def sparse(file, name, shape, written, **how):
    data = file.create_dataset(name, shape, "u1", **how)
    for row in written:
        data[row] = 7


KINDS = {
    "contiguous": lambda f: f.create_dataset("x", data=noise((53, 100), "u1")),
    "contiguous.float": lambda f: f.create_dataset("x", data=noise((20, 30, 40), "f4")),
    "contiguous.one_dimension": lambda f: f.create_dataset("x", data=noise(5000, "f8")),
    "contiguous.never_written": lambda f: f.create_dataset("x", (9, 10), "f4"),
    "compound": lambda f: f.create_dataset("x", data=np.zeros(40, [("image", "u1", (10, 10)), ("label", "i8")])),
    "strings": lambda f: f.create_dataset("x", data=np.array([b"abc", b"d"] * 20)),
    "chunk.row": lambda f: f.create_dataset("x", data=noise((300, 70), "u1"), chunks=(1, 70)),
    "chunk.rows": lambda f: f.create_dataset("x", data=noise((301, 70), "f4"), chunks=(16, 70)),
    "chunk.tiles": lambda f: f.create_dataset("x", data=noise((50, 30, 33), "u1"), chunks=(4, 7, 10)),
    "chunk.one": lambda f: f.create_dataset("x", data=noise((50, 30), "u1"), chunks=(50, 30)),
    "gzip": lambda f: f.create_dataset("x", data=noise((200, 700), "i4"), chunks=(1, 700), compression="gzip",
                                       shuffle=True),
    "gzip.rows": lambda f: f.create_dataset("x", data=noise((200, 70), "i4"), chunks=(8, 70), compression="gzip",
                                            fletcher32=True),
    "gzip.incompressible": lambda f: f.create_dataset("x", data=np.frombuffer(random.Random(1).randbytes(20_000), "u1")
                                                      .reshape(20, 1000), chunks=(1, 1000), compression="gzip"),
    "resizable": lambda f: f.create_dataset("x", data=noise((100, 40), "u1"), chunks=(3, 40), maxshape=(None, 40)),
    "resizable.twice": lambda f: f.create_dataset("x", data=noise((100, 40), "u1"), chunks=(3, 9),
                                                  maxshape=(None, None), compression="gzip"),
    "holes": lambda f: sparse(f, "x", (40, 100), [3, 17, 18, 39], chunks=(2, 100)),
    "chunk.never_written": lambda f: f.create_dataset("x", (9, 10), "f4", chunks=(1, 10)),
    "many": lambda f: f.create_dataset("x", data=noise((5000, 8), "u1"), chunks=(1, 8)),
}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_lies_where_libhdf5_says(tmp, kind, libver):
    with h5py.File(tmp / "a.h5", "w", libver=libver) as file:
        KINDS[kind](file)
    expected = [[(*piece, "a.h5") for piece in row] for row in stored(tmp / "a.h5", "x")]
    assert expected and ranges(f"root='{tmp}' file=a.h5 dataset=x") == expected


def test_several_datasets_and_files(tmp):
    """Row i of each dataset is sample i; files count on in their order. What is small beside the rest is no part."""
    expected = []
    for number, rows in enumerate([30, 1, 20]):
        path = tmp / f"part{number}.h5"
        with h5py.File(path, "w", userblock_size=512 * number) as file:
            group = file.create_group("train/deep")
            group.create_dataset("images", data=noise((rows, 3000), "u1", number), chunks=(1, 3000), compression="gzip")
            group.create_dataset("depth", data=noise((rows, 100), "f4", number))
            group.create_dataset("labels", data=noise(rows, "u1"))
        parts = [stored(path, f"train/deep/{name}") for name in ("images", "depth")]
        expected += [[(*piece, path.name) for part in parts for piece in part[row]] for row in range(rows)]
    names = "/train/deep/images,train/deep/depth,/train/deep/labels"
    assert ranges(f"root='{tmp}' file=part*.h5 dataset={names}") == expected


def test_compact_data_is_in_the_header(tmp):
    """There is nothing to be fetched for a row; the plan has its samples all the same."""
    with h5py.File(tmp / "a.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((10, 4)), properties)
        file.create_dataset("images", data=noise((10, 5000), "u1"))
    assert ranges(f"root='{tmp}' file=a.h5 dataset=x,images") == [
        [(*piece, "a.h5") for piece in row] for row in stored(tmp / "a.h5", "images")
    ]


def create(tmp, make):
    with h5py.File(tmp / "a.h5", "w") as file:
        make(file)


def test_what_has_no_place_of_its_own_is_refused(tmp):
    (tmp / "raw").write_bytes(bytes(1000))
    variable = h5py.string_dtype()
    view = h5py.VirtualLayout(shape=(10,), dtype="u1")
    view[:] = h5py.VirtualSource(tmp / "b.h5", "x", shape=(10,))
    kinds = {
        "variable length": [
            lambda f: f.create_dataset("x", data=["a", "bc"], dtype=variable),
            lambda f: f.create_dataset("x", (5,), dtype=h5py.vlen_dtype("u1")),
            lambda f: f.create_dataset("x", (5,), dtype=[("a", "i4"), ("b", variable)]),
            lambda f: f.create_dataset("x", (5,), dtype=[("a", [("b", h5py.vlen_dtype("i4"), (2,))])]),
            lambda f: f.create_dataset("x", (5,), dtype=h5py.ref_dtype),
        ],
        "other files": [lambda f: f.create_dataset("x", (10, 100), "u1", external=[(str(tmp / "raw"), 0, 1000)])],
        "virtual": [lambda f: f.create_virtual_dataset("x", view)],
        "single value": [lambda f: f.create_dataset("x", data=5), lambda f: f.create_dataset("x", data=h5py.Empty("f"))],
        "has no dataset": [lambda f: f.create_dataset("y", data=5), lambda f: f.create_group("x")],
        "want as many": [lambda f: [f.create_dataset("x", (5, 1), "u1"), f.create_dataset("y", (4, 1), "u1")]],
    }
    for cause, makers in kinds.items():
        for make in makers:
            create(tmp, make)
            names = "x,y" if cause == "want as many" else "x"
            assert cause in refused(f"root='{tmp}' file=a.h5 dataset={names}"), cause


def test_files_that_cannot_be_read_are_refused(tmp):
    create(tmp, KINDS["many"])
    whole = (tmp / "a.h5").read_bytes()

    def why(content):
        (tmp / "a.h5").write_bytes(content)
        return refused(f"root='{tmp}' file=a.h5 dataset=x")

    assert "signature" in why(b"")
    assert "signature" in why(b"text" * 1000)
    assert "truncated" in why(whole[:-1])
    # Of several parts: libhdf5 wants to be told so by whoever opens it.
    for driver, name in (("family", "part%d"), ("split", "part")):
        how = {"memb_size": 10_000} if driver == "family" else {}
        with h5py.File(tmp / name, "w", driver=driver, **how) as file:
            KINDS["many"](file)
    assert "truncated" in refused(f"root='{tmp}' file=part0 dataset=x")
    assert "multi driver" in refused(f"root='{tmp}' file=part-m.h5 dataset=x")
    # Another file that ends in this one, as a link inside it says: it is not opened.
    with h5py.File(tmp / "a.h5", "w") as file:
        file["x"] = h5py.ExternalLink("/etc/passwd", "/x")
    assert "has no dataset" in refused(f"root='{tmp}' file=a.h5 dataset=x")
    with h5py.File(tmp / "a.h5", "w", libver="latest") as file:
        KINDS["many"](file)
        file.flush()
        file.swmr_mode = True
        assert "write" in refused(f"root='{tmp}' file=a.h5 dataset=x")


def test_damaged_files_cost_a_refusal_at_most(tmp):
    """Whatever is said of them lies inside the file: the program checks that before it prints it."""
    rng = random.Random(5)
    for libver in ("earliest", "latest"):
        with h5py.File(tmp / "a.h5", "w", libver=libver) as file:
            file.create_dataset("x", data=noise((200, 20), "u1"), chunks=(1, 20), compression="gzip")
            file.create_dataset("y", data=noise((200, 20), "u1"))
        whole = (tmp / "a.h5").read_bytes()
        ends = {0: 0, 1: 0}
        for _ in range(60):
            damaged = bytearray(whole)
            for _ in range(rng.randrange(1, 20)):
                at = rng.randrange(len(damaged) if rng.random() < 0.5 else 2048)
                damaged[at] = rng.choice([0, 255, rng.randrange(256)])
            (tmp / "a.h5").write_bytes(damaged)
            done = ask(f"root='{tmp}' file=a.h5 dataset=x,y", "--ranges")
            assert done.returncode in ends and len(done.stderr.splitlines()) == done.returncode, done
            ends[done.returncode] += 1
            for line in done.stdout.decode().splitlines():
                offset, length, _ = line.removeprefix("+").split(" ", 2)
                assert int(offset) + int(length) <= len(damaged)
        assert ends[1] > 0


def test_the_chunks_of_a_large_file_are_found_in_time(tmp):
    """libhdf5 1.10 offers calls that go through all chunks for each: 100,000 would take minutes."""
    with h5py.File(tmp / "a.h5", "w") as file:
        file.create_dataset("x", data=noise((60_000, 4), "u1"), chunks=(1, 4))
    found = ranges(f"root='{tmp}' file=a.h5 dataset=x")
    assert len(found) == 60_000 and all(length == 4 for [(_, length, _)] in found)


def test_without_the_program(tmp):
    """As where only the main program was copied to."""
    create(tmp, KINDS["many"])
    alone = tmp / "bin"
    alone.mkdir()
    copy = pathlib.Path(alone, "clairfs")
    os.link(binary(), copy) if os.stat(binary()).st_dev == os.stat(tmp).st_dev else copy.write_bytes(
        pathlib.Path(binary()).read_bytes())
    copy.chmod(0o755)
    words = [copy, "plan", "order", f"shuffle=false format=hdf5 root='{tmp}' file=a.h5 dataset=x"]
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1 and b"clairfs-hdf5-index: No such file" in done.stderr
