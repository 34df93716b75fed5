"""Shards that the nodes of a job read from front to back, dealt as WebDataset's split_by_node deals them: each node's
workers are followed, and shards leave the source once where the nodes can keep them."""

import concurrent.futures

import pytest
from clairjob import clairjob
from clairmount import slowfs, wait_until
from test_streams import MIB, bytes_of, make_shards, orders_of, run_workers

NODES, WORKERS, EPOCHS = 2, 2, 3


def read_epoch(job, orders, epoch, source):
    """All workers of all nodes at the same time."""
    with concurrent.futures.ThreadPoolExecutor(NODES) as pool:
        done = [pool.submit(run_workers, node, "tar", {who: order for who, order in orders.items() if who[0] == rank},
                            epoch, source) for rank, node in enumerate(job)]  # fmt: skip
        for one in done:
            one.result()


# Of the dataset, in the RAM tiers of both nodes together.
@pytest.mark.parametrize(("share", "same"), [(1.5, True), (1.5, False), (0.5, False)], ids=["fits", "changes", "half"])
def test_each_byte_once_and_each_node_followed(tmp, share, same):
    names = make_shards(tmp / "src", "tar", 24, 2 * MIB)
    total = bytes_of(tmp / "src")
    ram = int(share * total / NODES) // MIB * MIB
    with slowfs(tmp / "src", "--attr-timeout", "1000") as slow:
        with clairjob(slow.path, NODES, "--ram", ram, "--staging", "4M", "--chunk", "1M") as job:
            slow.command("reset")
            text = f"world={NODES} ranks_per_node=1 workers={WORKERS} epochs={EPOCHS}"
            if same:
                text = f"format=tar sampler=webdataset shardshuffle=8 seed=5 {text}"
                orders = orders_of(names, EPOCHS, NODES, WORKERS)
            else:  # nodes read others' shards in later epochs: DistributedSampler over the shards
                text = f"format=tar sampler=torch.distributed seed=5 {text}"
                orders = distributed(names)
            (job[1].path / ".clairfs/plan").write_text(text + "\n")
            in_force = lambda node: node.stats()["plan_list"] and "placement" in node.stats()["job"]  # noqa: E731
            wait_until(lambda: all(in_force(node) for node in job), "the plan is in force on all nodes")
            for epoch in range(EPOCHS):
                read_epoch(job, orders, epoch, tmp / "src")
            for node in job:
                state = node.stats()["plan_list"][0]
                print(node.path, state)
                assert (state["suspensions"], state["out_of_order"]) == (0, 0), state
            read, network = slow.counters()["bytes"], job.stat("peers.bytes_in")
            bound = total + (EPOCHS - 1) * max(0, total - NODES * ram)
            print(f"share {share}: read {read / bound:.3f} of the bound, {read / total:.3f} S; network {network / total:.3f} S")
            assert job.stat("reads.failed") == 0
            assert read <= bound if share > 1 else read <= 1.05 * bound


def distributed(names):
    from torch.utils.data import DistributedSampler

    orders = {}
    for rank in range(NODES):
        sampler = DistributedSampler(names, num_replicas=NODES, rank=rank, seed=5)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            mine = [names[i] for i in sampler]
            for worker in range(WORKERS):
                orders.setdefault((rank, worker), []).append(mine[worker::WORKERS])
    return orders


def test_copies_of_shards_leave_the_source_once_for_both_nodes(tmp):
    """StreamingDataset with remote= on the mount: each node copies nearly all shards, and both begin at the same time."""
    pytest.importorskip("numpy")
    from streaming_dataset import SEED, Copies, order_of, write_shards

    counts, batch = [160] * 24, 8  # as many batches for each node: no sample comes twice
    (tmp / "src").mkdir()
    write_shards(tmp / "src", 20_000, counts)
    shards = sorted((tmp / "src").glob("*.mds"))
    total = sum(path.stat().st_size for path in shards)
    # With a canonical node a node each has its half of the shuffle (streaming/base/partition/orig.py).
    order = order_of("naive", 0, counts)
    halves = [order[: len(order) // 2], order[len(order) // 2 :]]
    with slowfs(tmp / "src", "--attr-timeout", "1000", "--bandwidth", "300M", "--latency", "500") as slow:
        with clairjob(slow.path, NODES, "--ram", int(1.5 * total / NODES), "--staging", "16M", "--chunk", "1M") as job:
            slow.command("reset")
            text = (f"format=shards file=*.mds sampler=StreamingDataset shard_sizes={tmp / 'src/index.json'} "
                    f"shuffle_algo=naive shuffle_seed={SEED} num_canonical_nodes={NODES} batch_size={batch} "
                    f"world={NODES} ranks_per_node=1")  # fmt: skip
            (job[1].path / ".clairfs/plan").write_text(text + "\n")
            in_force = lambda node: node.stats()["plan_list"] and "placement" in node.stats()["job"]  # noqa: E731
            wait_until(lambda: all(in_force(node) for node in job), "the plan is in force on all nodes")
            copies = []
            for rank, node in enumerate(job):
                (tmp / f"local{rank}").mkdir()
                copies.append(Copies(node.path, tmp / f"local{rank}", counts))
            with concurrent.futures.ThreadPoolExecutor(NODES) as pool:
                list(pool.map(Copies.work, copies, halves, [8 * batch] * NODES))
            for rank, node in enumerate(job):
                state = node.stats()["plan_list"][0]
                print(copies[rank].order, state)
                assert state["suspensions"] == 0, state
                assert state["in_order"] > 0, state
                assert len(copies[rank].order) == len(shards)
                for path in shards:
                    assert (tmp / f"local{rank}" / path.name).read_bytes() == path.read_bytes()
            assert job.stat("reads.failed") == 0
            assert job.stat("peers.bytes_in") > 0
            assert slow.counters()["bytes"] == total
