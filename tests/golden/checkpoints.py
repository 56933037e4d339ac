"""Writes a checkpoint on Spark of this release, for later ones to go on from: `python -m tests.golden.checkpoints`.

The archive has what the application reads, its checkpoint and results when it was stopped in the middle, and the
results that it must have at its end.  Paths are relative: whoever goes on does so in the folder of the archive.
"""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cqels.model.release import RELEASE

from .make import HERE, P

ARCHIVE = "checkpoint.tar.xz"
CHECKPOINT, RESULTS, EXPECTED = Path("checkpoint"), Path("results"), Path("expected")
QUERIES: dict[str, dict[str, Any]] = {
    "join": {
        "query": "SELECT ?s ?v ?o ?r "
        "{ STREAM :a [RANGE 1s] { ?s :p ?v } STREAM :b [RANGE 500ms] { ?s :q ?o } ?s :in [ :name ?r ] }"
    },
    "sum": {"query": "SELECT ?s (SUM(?v) AS ?x) { STREAM :a [RANGE 2s SLIDE 100ms] { ?s :p ?v } } GROUP BY ?s"},
    "latest": {"query": "SELECT ?s ?v { STREAM :a [RANGE 700ms] { ?s :p ?v } }", "emit": "changes", "spread": True},
    "top": {
        "query": "SELECT ?s (SUM(?v) AS ?n) { STREAM :a [RANGE 1s] { ?s :p ?v } } "
        "GROUP BY ?s ORDER BY DESC(?n) LIMIT 3",
        "spread": True,
    },
}
MOVED = ("sum", "top (1 of 2)")
"""What was moved to another engine: what that begins with is a snapshot."""
COUNT = 300
BATCH = 3_000


def write_input() -> None:
    """The files that the application reads, in the present folder; they are as old wherever they are."""
    line = '<http://ex.org/s{}> <http://ex.org/{}> "{}"^^<http://www.w3.org/2001/XMLSchema#integer> {} .\n'
    first = [line.format(each % 7, "p", each * each % 101, 10 * each) for each in range(COUNT)]
    second = [line.format(each % 5, "q", each, 20 * each + 3) for each in range(COUNT // 2)]
    rooms = [f":s{each} :in _:r{each % 2} . _:r{each % 2} :name 'room {each % 2}' .\n" for each in range(6)]
    Path("b").mkdir()
    texts = {"a.nt": first, "b/1.nt": second[: COUNT // 4], "b/2.nt": second[COUNT // 4 :]}
    for name, lines in {**texts, "rooms.ttl": ["@prefix : <http://ex.org/> .\n", *rooms]}.items():
        Path(name).write_text("".join(lines))
        os.utime(name, (1_700_000_000, 1_700_000_000))


def app(spark: Any, checkpoint: Path | None = CHECKPOINT, batch: int = BATCH) -> Any:
    """The application, in the folder of its files."""
    from cqels.spark.driver.app import App

    made = App(spark, checkpoint=checkpoint, batch_bytes=batch, instances=2)
    made.files("<http://ex.org/a>=a.nt")
    made.files("<http://ex.org/b>=b/*.nt?lateness=20ms")
    made.load("rooms.ttl")
    for name, options in QUERIES.items():
        made.add(**{**options, "query": P + options["query"]}, name=name)
    return made


def results(folder: Path) -> Mapping[str, str]:
    """The files of results in a folder, and what is in them."""
    return {path.name: path.read_text() for path in sorted(folder.glob("[!.]*"))}


def begin(spark: Any) -> None:
    """Run the application to the middle, and once to its end."""
    from cqels.spark.driver.checkpoint import Checkpoint
    from cqels.spark.sinks import Files

    assert app(spark, None).run(Files(EXPECTED, "csv", passing=True)).wait(600)
    run = app(spark).run(Files(RESULTS, "csv"), trigger="2 seconds")
    for batch, move in ((2, MOVED), (5, ())):
        while Checkpoint(CHECKPOINT).done < batch:
            assert not run.wait(0.1), "it is to be stopped in the middle"
        if move:
            run.change(move=dict.fromkeys(move))
    run.stop()
    assert results(RESULTS).keys() == results(EXPECTED).keys()
    assert all(len(text) < len(results(EXPECTED)[name]) for name, text in results(RESULTS).items())


def main(release: str) -> None:
    from cqels.spark.session.spark_session import start, stop

    with TemporaryDirectory() as folder:
        os.chdir(folder)  # before Spark's processes begin, which read files by the same paths
        write_input()
        spark = start(master="local[2]", partitions=2)
        try:
            begin(spark)
        finally:
            stop(spark)
        with tarfile.open(HERE / release / ARCHIVE, "w:xz") as archive:
            for path in sorted(Path().iterdir()):
                if path.name != "artifacts":
                    archive.add(path, filter=_anyone)


def _anyone(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file without those whose it was."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(member.mtime)
    return member


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else RELEASE)
