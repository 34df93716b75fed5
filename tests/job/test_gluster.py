"""A real parallel filesystem as the source: GlusterFS itself counts what four nodes read from it."""

import json
import os
import pathlib

import gluster
import pytest

SCRIPT = pathlib.Path(__file__).with_name("gluster_job.py")


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and glusterd need root")
def test_bricks_are_read_once():
    if absent := gluster.missing():
        pytest.fail(absent)
    seen = json.loads(gluster.isolated(SCRIPT, 4).splitlines()[-1])
    assert seen["failed"] == 0
    assert seen["asked"] == seen["size"]
    # The kernel below the daemons may give pages of its own readahead up before they are used: 64 KB once in ten runs.
    assert seen["size"] <= seen["counts"]["bytes"] <= seen["size"] * 1.01
    assert seen["counts"]["OPEN"] == seen["files"]
