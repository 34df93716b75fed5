"""Plans that find themselves, of records in one large file: arrays that are mapped and databases, as PyTorch scripts read them.
Here it is which plan is found; that a plan of records is followed in every way that files are read is in plan/records/."""

import json
import subprocess

import clairmount
import pytest
from clairmount import binary
from planning import JOB_SECONDS
from unplanned import TORCH, detect, found, job_words, searching

np = pytest.importorskip("numpy")
pytest.importorskip("torch")
pytest.importorskip("torchvision")

# What is not kept in the page cache is seen again in the next epoch.
OPTIONS = ("--ram", "64M", "--staging", "16M", "--page-cache", "0")
SIZE = 110_000

# `read(i)` reads a record. In one epoch only: a batch at a time until a plan is found.
RECORDS = """
import mmap
class Records(Dataset):
    def __init__(self, count, open_file):
        self.count, self.open_file, self.read = count, open_file, None
    def __len__(self):
        return self.count
    def __getitem__(self, i):
        if self.read is None:
            self.read = self.open_file()
        return self.read(i)
def records(count, open_file, **options):
    return DataLoader(Records(count, open_file), **{"batch_size": 8, "num_workers": 2, **options})
def until_found(batches, wait=25):
    for step, _ in enumerate(batches):
        if step >= wait and is_settled(0, 60 if step == wait else 1):
            break
    settle(0)
    print(json.dumps(auto()["plan"]))
def open_rows():
    rows = numpy.load(mount + "/rows.npy", mmap_mode="r")
    return lambda i: int(rows[i].sum())
def open_rows_at_random():
    rows = numpy.load(mount + "/rows.npy", mmap_mode="r")
    rows._mmap.madvise(mmap.MADV_RANDOM)
    return lambda i: int(rows[i].sum())
"""
# As ImageFolderLMDB does it, which is where most training code on LMDB comes from.
LMDB = """
import lmdb
path = mount + "/rows.lmdb"
def open_database():
    env = lmdb.open(path, subdir=os.path.isdir(path), readonly=True, lock=False, readahead=False, meminit=False)
    def read(i):
        with env.begin(write=False) as txn:
            return len(txn.get(b"%d" % i))
    return read
"""
HDF5 = """
import h5py
def open_images():
    images = h5py.File(mount + "/rows.h5", "r")["images"]
    return lambda i: int(images[i].sum())
def open_shards():
    shards = [h5py.File(f"{mount}/rows-{number}.h5", "r")["images"] for number in (0, 1)]
    return lambda i: int(shards[i // 300][i % 300].sum())
"""
# As Megatron's _MMapBinReader and _FileBinReader.
MEGATRON = """
index = open(mount + "/tokens.idx", "rb").read()
count = int.from_bytes(index[18:26], "little")
sizes = numpy.frombuffer(index, numpy.int32, count, 34)
pointers = numpy.frombuffer(index, numpy.int64, count, 34 + sizes.nbytes)
def map_tokens():
    tokens = numpy.memmap(mount + "/tokens.bin", numpy.uint8, "r")
    return lambda i: int(tokens[pointers[i]:pointers[i] + 2 * sizes[i]].sum())
def read_tokens():
    def read_sequence(i):
        tokens = bytearray(2 * int(sizes[i]))
        with open(mount + "/tokens.bin", "rb", buffering=0) as file:
            file.seek(int(pointers[i]))
            return file.readinto(tokens)
    return read_sequence
"""


def run_records_job(mount, script):
    """Runs it to its end; what it has printed."""
    words = job_words(mount, TORCH + RECORDS + script)
    return subprocess.run(words, check=True, timeout=JOB_SECONDS, stdout=subprocess.PIPE).stdout.decode()


def write_rows(folder, count):
    """An array of zeros that takes no room."""
    folder.mkdir()
    np.lib.format.open_memmap(folder / "rows.npy", mode="w+", dtype=np.uint8, shape=(count, SIZE)).flush()


def write_database(folder, count):
    pytest.importorskip("lmdb")
    import record_plans

    folder.mkdir()
    record_plans.write_lmdb(folder, count, SIZE)


def write_images(folder, count, chunks=None, names=("rows.h5",)):
    h5py = pytest.importorskip("h5py")
    folder.mkdir()
    for name in names:
        with h5py.File(folder / name, "w") as file:
            file.create_dataset("images", data=np.zeros((count, SIZE), np.uint8), chunks=chunks)


def write_tokens(folder, count):
    """Sequences of zeros that take no room, of two bytes a token."""
    import record_plans

    folder.mkdir()
    sizes = np.random.default_rng(1).integers(SIZE // 3, 2 * SIZE // 3, count)
    record_plans.write_megatron_index(folder / "tokens", sizes, "uint16")
    with open(folder / "tokens.bin", "wb") as file:
        file.truncate(2 * int(sizes.sum()))


def save_index(mount, file, *keys):
    """It is looked for when the mount begins."""
    subprocess.run([binary(), "index", mount.path / file, *keys], check=True, stdout=subprocess.DEVNULL, timeout=60)
    mount.remount()


def assert_plan(state, **keys):
    assert {key: state.get(key) for key in keys} == keys, state


@pytest.mark.parametrize("count", [1000, 4000])
def test_rows_that_are_mapped(tmp, count):
    """Each page fault brings what lies around it, too. Of 1,000 rows that is most of the file after a few hundred."""
    write_rows(tmp / "src", count)
    with searching(tmp / "src", *OPTIONS) as mount:
        said = run_records_job(mount, f"""
generator = torch.Generator().manual_seed(3407)
until_found(records({count}, open_rows, shuffle=True, generator=generator))
""")
    assert_plan(json.loads(said), format="npy", file="rows.npy", sampler="torch.random", generator="loader", seed=3407)


def test_rows_that_are_mapped_to_be_read_at_random(tmp):
    """Page by page, in all epochs."""
    write_rows(tmp / "src", 600)
    with searching(tmp / "src", *OPTIONS) as mount:
        run_records_job(mount, """
batches = records(600, open_rows_at_random, shuffle=True, generator=torch.Generator().manual_seed(3407), num_workers=0)
run(3, lambda number: batches, wait=12)
""")
        state, answer = found(mount), detect(mount)
    assert_plan(state["plan"], format="npy", file="rows.npy", sampler="torch.random", generator="loader", seed=3407, first_epoch=1)
    assert state["suspensions"] == 0, state
    assert answer["state"] == "found" and answer["log10_chance"] < -9, answer
    assert "format=npy file=rows.npy" in answer["plan"] and "seed=3407" in answer["plan"], answer


def test_a_database_with_an_index(tmp):
    write_database(tmp / "src", 600)
    with searching(tmp / "src", *OPTIONS) as mount:
        save_index(mount, "rows.lmdb", "keys=decimal")
        run_records_job(mount, LMDB + """
data = Records(600, open_database)
sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=42)
batches = DataLoader(data, batch_size=8, num_workers=0, sampler=sampler)
def epoch(number):
    sampler.set_epoch(number)
    return batches
run(3, epoch, wait=12)
""")
        state, answer = found(mount), detect(mount)
    keys = {"format": "lmdb", "file": "rows.lmdb", "keys": "decimal", "sampler": "torch.distributed", "seed": 42, "first_epoch": 1}
    assert_plan(state["plan"], **keys)
    assert state["suspensions"] == 0, state
    assert answer["state"] == "found" and answer["log10_chance"] < -9, answer


@pytest.mark.parametrize(("workers", "chunks"), [(0, None), (2, (1, SIZE))], ids=["0", "2"])
def test_rows_of_hdf5(tmp, workers, chunks):
    """That lie one after the other, or each in a chunk that a tree has. Each worker opens the file for itself."""
    write_images(tmp / "src", 600, chunks)
    with searching(tmp / "src", *OPTIONS) as mount:
        save_index(mount, "rows.h5", "dataset=/images")
        said = run_records_job(mount, HDF5 + f"""
generator = torch.Generator().manual_seed(3407)
until_found(records(600, open_images, shuffle=True, generator=generator, num_workers={workers}), wait=12)
""")
    keys = {"format": "hdf5", "file": "rows.h5", "dataset": "/images"}
    assert_plan(json.loads(said), **keys, sampler="torch.random", generator="loader", seed=3407)


def test_rows_of_several_files(tmp):
    """As ConcatDataset numbers them; one index has all."""
    write_images(tmp / "src", 300, names=("rows-0.h5", "rows-1.h5"))
    with searching(tmp / "src", *OPTIONS) as mount:
        save_index(mount, "rows-*.h5", "dataset=/images")
        said = run_records_job(mount, HDF5 + """
generator = torch.Generator().manual_seed(3407)
until_found(records(600, open_shards, shuffle=True, generator=generator), wait=12)
""")
    keys = {"format": "hdf5", "file": "rows-*.h5", "dataset": "/images"}
    assert_plan(json.loads(said), **keys, sampler="torch.random", generator="loader", seed=3407)


@pytest.mark.parametrize(("open_tokens", "workers"), [("map_tokens", 2), ("read_tokens", 0)])
def test_sequences_of_megatron(tmp, open_tokens, workers):
    write_tokens(tmp / "src", 4000)
    with searching(tmp / "src", *OPTIONS) as mount:
        save_index(mount, "tokens.bin")
        said = run_records_job(mount, MEGATRON + f"""
data = Records(4000, {open_tokens})
sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=42)
until_found(DataLoader(data, batch_size=8, num_workers={workers}, sampler=sampler))
""")
    keys = {"format": "megatron", "file": "tokens.bin"}
    assert_plan(json.loads(said), **keys, sampler="torch.distributed", seed=42)


def test_a_database_without_an_index(tmp):
    """Nothing is found, and no index is made that nobody has asked for."""
    write_database(tmp / "src", 300)
    with clairmount.clairfs(tmp / "src", *OPTIONS) as mount:
        run_records_job(mount, LMDB + """
generator = torch.Generator().manual_seed(42)
for _ in records(300, open_database, shuffle=True, generator=generator, num_workers=0):
    pass
""")
        answer = detect(mount)
        assert answer["state"] == "watching" and answer["opens"] <= 2, answer
        assert not list(mount.catalog_dir.glob("index/*.idx"))
