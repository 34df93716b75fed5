"""Four ranks of a real training job (PyTorch, gloo), each on the mount of its own node."""

import pytest
from clairjob import clairjob
from clairmount import wait_until
from planning import make_images, plan, predicted, register, run_job

pytest.importorskip("torch")
pytest.importorskip("torchvision")


def test_four_ranks_on_four_mounts(tmp):
    nodes, batch, epochs, seed = 4, 8, 3, 42
    make_images(tmp / "src", 400, side=32)
    text = f"format=imagefolder sampler=torch.distributed seed={seed} epochs={epochs} world={nodes} ranks_per_node=1"
    text += f" batch={batch} workers=1"
    with clairjob(tmp / "src", nodes, "--ram", "64M", "--staging", "8M") as job:
        register(job[2], text)
        wait_until(lambda: all(node.stats()["plan_list"] for node in job), "all nodes have the plan")
        mounts = job[0].path.parent.parent
        log = run_job(
            tmp / "log",
            train=f"{mounts}/{{rank}}/mnt",
            gloo=True,
            seed=seed,
            ranks=nodes,
            batch=batch,
            workers=1,
            epochs=epochs,
        )
        for epoch in range(epochs):
            for rank in range(nodes):
                assert log.delivered[f"train{epoch}", rank] == predicted(tmp / "src", text, epoch, rank)
        log.assert_bytes_of(tmp, train="src")
        for node in job:
            state = plan(node)
            assert (state["state"], state["suspensions"], state["out_of_order"]) == ("finished", 0, 0), state
        assert job.stat("reads.failed") == 0
