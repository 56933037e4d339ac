"""Damaged bytes of what is read besides streams: files that are loaded, and the answers of endpoints."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from pyoxigraph import NamedNode

import cqels
from cqels.engine.file_replay import replay
from cqels.ingest import declare
from cqels.model.errors import CqelsError
from cqels.plan.algebra import Service, walk_plan
from cqels.plan.prepare import prepare
from cqels.store import http, service
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions

from .damage import damaged
from .harness import Kind, shown
from .test_input_bytes import TOKENS

XML = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://ex.org/">
  <rdf:Description rdf:about="http://ex.org/a"><x:p xml:lang="en">text</x:p><x:q rdf:nodeID="b"/></rdf:Description>
  <x:T rdf:nodeID="b"><x:p rdf:datatype="http://www.w3.org/2001/XMLSchema#integer">7</x:p></x:T>
</rdf:RDF>"""
TURTLE = "@prefix : <http://ex.org/> .\n:a :p 1, 2.5, 'x'@en ; :q [ :r ( 1 2 ) ] .\n_:b a :T .\n"
QUADS = '<http://ex.org/a> <http://ex.org/p> "x\\n\\u0041"@en <http://ex.org/g> .\n_:b <http://ex.org/q> _:b .\n'
FILES = {
    "ttl": TURTLE,
    "n3": TURTLE,
    "nt": QUADS.replace(" <http://ex.org/g>", ""),
    "nq": QUADS,
    "trig": "@prefix : <http://ex.org/> .\n:g { :a :p :b , 'text' }\n{ :a :q 5 . << :a :p :b >> :r 1 }\n",
    "jsonld": '{"@context": {"x": "http://ex.org/"}, "@id": "x:a", "x:p": [1, {"@value": "t", "@language": "en"}]}',
    "rdf": XML,
}
"""By the endings of their names."""
ANSWER = {
    "head": {"vars": ["s", "o"]},
    "results": {
        "bindings": [
            {"s": {"type": "uri", "value": "http://ex.org/a"}, "o": {"type": "literal", "value": "x"}},
            {"s": {"type": "bnode", "value": "b"}, "o": {"type": "literal", "value": "x", "xml:lang": "en"}},
            {"o": {"type": "literal", "value": "1", "datatype": "http://www.w3.org/2001/XMLSchema#integer"}},
        ]
    },
}
ASKED = "SELECT * { STREAM <x:s> [NOW] { ?s ?p ?o } SERVICE <http://ex.org/sparql> { ?s <x:p> ?o } }"


def mutated(content: bytes, random: Random) -> bytes:
    """Some tokens that readers do not like instead of bytes, or bytes as a bad disk has them."""
    if random.random() < 0.4:
        return damaged(content, random)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(content) + 1)
        content = content[:place] + random.choice(TOKENS) + content[place + random.choice([0, 1, 3, 10]) :]
    return content


# ---------------------------------------------------------------- files that are loaded


def draw_file(random: Random) -> bytes:
    ending = random.choice([*FILES])
    return f"{ending}\n".encode() + mutated(FILES[ending].encode(), random)


def check_loaded(case: bytes) -> None:
    """A file is loaded or refused with its place, and what was loaded can be asked; a stream of it goes to its end."""
    ending, _, content = case.partition(b"\n")
    with TemporaryDirectory() as folder, cqels.Engine() as engine:
        path = Path(folder) / f"data.{ending.decode()}"
        path.write_bytes(content)
        query = engine.register("SELECT * { STREAM <x:s> [NOW] { ?a ?b ?c } ?s ?p ?o }")
        try:
            engine.load(path)
        except CqelsError as error:
            shown(error, placed=True)
        engine.push("x:s", "<x:a> <x:b> 1 .", time="1s")
        for result in query.take():
            repr(result).encode()
        rejected: list[Any] = []
        try:
            declaration = declare("x:s", path, time="http://ex.org/at")
            list(
                replay(
                    [prepare("SELECT * { STREAM <x:s> [NOW] { ?a ?b ?c } }")],
                    [declaration],
                    Store(),
                    reject=rejected.append,
                )
            )
        except CqelsError as error:
            shown(error)


LOADED = Kind("loaded", draw_file, check_loaded, "data")


# ---------------------------------------------------------------- answers of endpoints


def draw_answer(random: Random) -> bytes:
    return mutated(json.dumps(ANSWER).encode(), random)


def check_answer(case: bytes) -> None:
    """An endpoint's answer is a table of terms, or it gave none, which is said."""
    (asked,) = (node for node in walk_plan(prepare(ASKED).plan) if isinstance(node, Service))
    with patch.object(http, "fetch", lambda *_, **__: Fetched(case)):
        try:
            table = service.ask(asked, Permissions(hosts=None))
        except service.ServiceFailure as failure:
            shown(failure)
            return
    with cqels.Engine() as engine:
        engine.register("SELECT * { STREAM <x:s> [NOW] { ?a ?b ?o } ?s <x:p> ?o }")
        rows = [(s, NamedNode("x:p"), o) for s, o in table.rows if s is not None and o is not None]
        engine.load([row for row in rows if not hasattr(row[0], "datatype")])


class Fetched:
    """What `fetch` gives."""

    def __init__(self, content: bytes) -> None:
        self.content = content


ANSWERS = Kind("answers", draw_answer, check_answer)
