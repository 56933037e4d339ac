"""Writes the state of this release, for every later one to open: `python -m tests.golden.make`.

Run it once for a release, when all its layouts are final, and keep the files: they are never made again.
"""

from __future__ import annotations

import json
import random
import sys
from base64 import b64encode
from gzip import compress
from pathlib import Path
from typing import Any

import cqels
from cqels.ingest import StreamSettings
from cqels.ingest.element_batch import Batch
from cqels.model.release import RELEASE
from cqels.plan.prepare import prepare

HERE = Path(__file__).parent
P = "PREFIX : <http://ex.org/> "
STREAMS = ("http://ex.org/a", "http://ex.org/b")
STATIC = (
    "INSERT DATA { <http://ex.org/s1> <http://ex.org/in> <http://ex.org/r> . <http://ex.org/s2> <http://ex.org/in> 7 }"
)
QUERIES: dict[str, dict[str, str]] = {
    "join": {
        "text": "SELECT ?s ?v ?o { STREAM :a [RANGE 1s] { ?s :p ?v } STREAM :b [RANGE 2s] { ?s :q ?o } ?s :in ?r }"
    },
    "sum": {"text": "SELECT ?s (SUM(?v) AS ?x) { STREAM :a [RANGE 2s SLIDE 100ms] { ?s :p ?v } } GROUP BY ?s"},
    "top": {"text": "SELECT ?s ?v { STREAM :a [TRIPLES 20] { ?s :p ?v } } ORDER BY ?v LIMIT 3"},
    "not": {"text": "SELECT ?s { STREAM :a [RANGE 1s] { ?s :p ?v } MINUS { STREAM :b [RANGE 300ms] { ?s :q ?o } } }"},
    "maybe": {"text": "SELECT * { STREAM :a [RANGE 1s] { ?s :p ?v } OPTIONAL { STREAM :b [NOW] { ?s :q ?o } } }"},
    "changes": {"text": "SELECT DISTINCT ?s { STREAM :b [RANGE 500ms] { ?s :q ?o } }", "emit": "changes"},
    "closing": {"text": "SELECT ?v { STREAM :a [RANGE 1s SLIDE 200ms] { ?s :p ?v } }", "policy": "window-close"},
    "first": {"text": "SELECT ?s ?v { STREAM :a [RANGE 400ms] { ?s :p ?v } }", "policy": "cqels-1", "emit": "changes"},
    "all": {"text": "SELECT (COUNT(*) AS ?n) (MAX(?v) AS ?m) { STREAM :a [ALL] { ?s :p ?v } }"},
    "ask": {"text": "ASK { STREAM :a [RANGE 50ms] { :s3 :p ?v } }"},
    "http://ex.org/made": {"text": "CONSTRUCT { ?s :made ?t } { STREAM :a [NOW] { ?s :p ?v } BIND(STR(?v) AS ?t) }"},
    "reads": {"text": "SELECT ?t { STREAM <http://ex.org/made> [RANGE 300ms] { ?s :made ?t } FILTER(STRLEN(?t) > 1) }"},
    "alike": {"text": "SELECT ?v { STREAM :a [RANGE 1s] { :s1 :p ?v } }"},
    "alike too": {"text": "SELECT ?v { STREAM :a [RANGE 1s] { :s2 :p ?v } }"},
}
COUNT = 60


def engine() -> cqels.Engine:
    """The engine whose state is kept."""
    made = cqels.Engine()
    made.stream(STREAMS[0], lateness="50ms")
    made.stream(STREAMS[1])
    made.update(STATIC)
    for name, options in QUERIES.items():
        made.register(P + options["text"], name=name, emit=options.get("emit"), policy=options.get("policy"))
    return made


def feed(made: cqels.Engine, start: int) -> None:
    """So many elements of each stream from a time on, in milliseconds."""
    draw = random.Random(start)
    for number in range(COUNT):
        time = start + 10 * number
        made.push(
            STREAMS[0], f"<http://ex.org/s{draw.randrange(5)}> <http://ex.org/p> {draw.randrange(99)} .", f"{time}ms"
        )
        made.push(STREAMS[1], f"<http://ex.org/s{draw.randrange(5)}> <http://ex.org/q> {number} .", f"{time}ms")


def sent(made: cqels.Engine) -> dict[str, list[list[Any]]]:
    """What all queries have sent, as plain values."""
    return {
        query.name: [
            [
                each.nanoseconds,
                each.tick,
                each.sign,
                [*map(str, each.values)],
                str(each.triples),
                each.boolean,
                each.empty,
            ]
            for each in query.take()
        ]
        for query in made.queries
    }


def program() -> Any:
    """What an engine of a pipeline on Spark runs."""
    from cqels.pipeline.instance.program import Program

    queries = [
        prepare(P + options["text"], name=name, emit=options.get("emit"), policy=options.get("policy"))
        for name, options in QUERIES.items()
        if name in ("join", "sum", "top")
    ]
    return Program.of("golden", queries, [StreamSettings(iri) for iri in STREAMS])


def arrivals(start: int) -> list[Any]:
    """A micro-batch of such elements."""
    from cqels.pipeline.instance.instance_commands import Arrival
    from cqels.pipeline.lift.block_format import pack
    from cqels.pipeline.lift.block_writer import new_terms

    terms, draw = new_terms(), random.Random(start)
    made = []
    for stream, predicate in enumerate("pq"):
        words = [f"<http://ex.org/{predicate}>", '"{}"^^<http://www.w3.org/2001/XMLSchema#integer>']
        batch = Batch.of(
            (
                (start + 10 * number) * 1_000_000,
                stream,
                [tuple(terms.encode(_term(text)) for text in (_subject(draw), words[0], words[1].format(number)))],
            )
            for number in range(COUNT)
        )
        made.append(Arrival(stream, "", pack(batch, terms.dictionary)))
    return made


def _subject(draw: random.Random) -> str:
    return f"<http://ex.org/s{draw.randrange(5)}>"


def _term(text: str) -> Any:
    from cqels.model.dictionary import term_of

    return term_of(text)


def portions(instance: Any) -> list[list[Any]]:
    """What an engine of a pipeline has sent."""
    from pyarrow.ipc import open_stream

    return [
        [each.query, each.number, each.count, json.loads(json.dumps(open_stream(each.payload).read_all().to_pylist()))]
        for each in instance.taken()
    ]


def main(release: str) -> None:
    from cqels.pipeline.instance.engine_instance import Instance
    from cqels.pipeline.instance.instance_commands import registration
    from cqels.pipeline.instance.program import Origin
    from cqels.spark.operator.state_layouts import Head, checksum_of

    folder = HERE / release
    folder.mkdir(exist_ok=True)
    with engine() as made:
        feed(made, 0)
        sent(made)
        (folder / "engine.snapshot.gz").write_bytes(compress(made.snapshot(), mtime=0))
        feed(made, 10 * COUNT)
        (folder / "engine.json.gz").write_bytes(compress(json.dumps(sent(made)).encode(), mtime=0))
    whole = program()
    commands = [registration(query, print) for print, query in whole.read().values()]
    instance = Instance(whole, commands=commands)
    instance.advance(arrivals(0))
    portions(instance)
    saved = instance.saved()
    log = [(1, *each) for each in arrivals(10 * COUNT)]
    head = Head(entries=len(log), log_sum=checksum_of(log), commands=len(commands), commanded=instance.commanded)
    kept = {
        "head": head.written(),
        "commands": commands,
        "saved": b64encode(saved).decode(),
        "log": [
            [batch, stream, place, b64encode(block).decode(), command] for batch, stream, place, block, command in log
        ],
        "origin": b64encode(Origin(tuple(commands), instance.prints, saved).written()).decode(),
    }
    again = Instance.rebuild(whole, commands, saved, log)
    again.advance(arrivals(20 * COUNT))
    (folder / "state.json.gz").write_bytes(compress(json.dumps({**kept, "sent": portions(again)}).encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else RELEASE)
