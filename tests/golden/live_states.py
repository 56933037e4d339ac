"""Writes the state of a live run of this release, for later ones to go on from: `python -m tests.golden.live_states`.

The archive has the folder of a run that was ended behind a snapshot and some of its log, and `expected.json`: the
results of the last batch, which are delivered again, and of the next one.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cqels.model.release import RELEASE
from cqels.pipeline.instance.driven_instance import Outcome
from cqels.pipeline.instance.durable_instance import DurableInstance
from cqels.pipeline.instance.instance_commands import Arrival

from .make import COUNT, HERE, STATIC, arrivals, program

ARCHIVE = "live.tar.xz"
UPDATE = Arrival(command=json.dumps({"update": STATIC}))


def opened(folder: Path) -> DurableInstance:
    instance = DurableInstance(folder, program(), fork=False)
    instance.recover()
    return instance


def chunks(outcome: Outcome | None) -> list[list[Any]]:
    """The results of a batch as plain values."""
    from pyarrow.ipc import open_stream

    assert outcome is not None
    return [
        [each.query, each.number, each.count, json.loads(json.dumps(open_stream(each.payload).read_all().to_pylist()))]
        for each in outcome.chunks
    ]


def last_batch(instance: DurableInstance) -> Outcome:
    return instance.advance(3, arrivals(30 * COUNT), {"positions": {"a": 3}})


def write(archive: Path) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        instance = opened(folder / "state")
        instance.advance(0, [UPDATE, *arrivals(0)], {"positions": {"a": 0}})
        instance.advance(1, arrivals(10 * COUNT), {"positions": {"a": 1}})
        instance.maintain(now=True)
        instance.advance(2, arrivals(20 * COUNT), {"positions": {"a": 2}})
        instance.close()
        with tarfile.open(archive, "w:xz") as file:
            file.add(folder / "state", "state")
            again = opened(folder / "state")
            expected = {"last": chunks(again.last), "next": chunks(last_batch(again))}
            again.close()
            (folder / "expected.json").write_text(json.dumps(expected))
            file.add(folder / "expected.json", "expected.json")


if __name__ == "__main__":
    write(HERE / (sys.argv[1] if len(sys.argv) > 1 else RELEASE) / ARCHIVE)
