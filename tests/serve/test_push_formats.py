"""What becomes of pushes: how each kind of body is lifted, and that each answer says exactly what was taken of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import time_ns
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode

import cqels
from cqels.ingest.declarations import FUTURE
from cqels.live.live_run import LiveSettings
from cqels.model.errors import DataError
from cqels.pipeline.lift.block_format import unpack
from cqels.pipeline.lift.block_writer import new_terms
from cqels.pipeline.source.inbox import InboxFull
from cqels.pipeline.source.live_source import Message
from cqels.serve.backend import Pipeline
from cqels.serve.push_formats import PushFormats, UnknownMediaType
from cqels.serve.reception import SHOWN, Busy, Outcome, Reception
from cqels.serve.served_stream import ServedStream
from cqels.serve.server import Address, Server
from cqels.serve.service import Service
from cqels.store.dataset import Store

MANY = int(os.environ.get("FUZZ_EXAMPLES", "1000"))
EX = "http://ex.org/"
SECOND = 10**9
NT, NQ, TTL, TRIG, JSONLD, JSON, NDJSON, CSV = (
    "application/n-triples",
    "application/n-quads",
    "text/turtle",
    "application/trig",
    "application/ld+json",
    "application/json",
    "application/x-ndjson",
    "text/csv",
)
PROV = "http://www.w3.org/ns/prov#generatedAtTime"
DATE_TIME = "http://www.w3.org/2001/XMLSchema#dateTime"
TIMED = 'subject = "ex:{id}"\n[prefixes]\nex = "http://ex.org/"\n[time]\ncolumn = "at"\n[predicates]\n"ex:p" = "v"\n'
ARRIVES = ServedStream(clock="arrival")

Found = list[tuple[int, frozenset[str]]]
"""Times in seconds, and the objects of the triples of each element."""


@dataclass
class Pushing:
    """A reception whose blocks are looked into."""

    reception: Reception
    messages: list[Message] = field(default_factory=list)

    def __call__(self, body: str | bytes, media_type: str = "", time: int | None = None) -> Outcome:
        (outcome,) = self.all([(body, media_type, time)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def all(self, pushes: Sequence[tuple[str | bytes, str, int | None]]) -> list[Outcome | BaseException]:
        """Push at once."""

        async def pushed() -> list[Outcome | BaseException]:
            bodies = [(each[0].encode() if isinstance(each[0], str) else each[0], *each[1:]) for each in pushes]
            return await asyncio.gather(*(self.reception.push(*each) for each in bodies), return_exceptions=True)

        return asyncio.run(pushed())

    def elements(self) -> list[tuple[int, list[tuple[Any, ...]]]]:
        """What is in the blocks, and is there no more."""
        terms, found = new_terms(), []
        for message in self.messages:
            assert message.value is not None
            batch = unpack(message.value, terms.dictionary)
            triples = iter(terms.decode_rows(batch.triples.reshape(-1, 3)))
            for time, number in zip(batch.times.tolist(), batch.counts.tolist(), strict=True):
                found.append((time, [next(triples) for _ in range(number)]))
        self.messages.clear()
        return found

    def found(self) -> Found:
        return [
            (time // SECOND, frozenset(getattr(object, "value", "") for _, _, object in triples))
            for time, triples in self.elements()
        ]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def pushing(pool: ThreadPoolExecutor, stream: ServedStream, template: Path | None = None) -> Pushing:
    messages: list[Message] = []
    formats = PushFormats(stream, template)
    return Pushing(Reception(f"{EX}obs", formats, messages.extend, future=stream.future, pool=pool), messages)


@pytest.fixture
def push(pool: ThreadPoolExecutor) -> Pushing:
    return pushing(pool, ServedStream(unit="s"))


@pytest.fixture
def records(pool: ThreadPoolExecutor, tmp_path: Path) -> Pushing:
    (tmp_path / "timed.toml").write_text(TIMED)
    return pushing(pool, ServedStream(unit="s"), tmp_path / "timed.toml")


def one(value: object, time: int) -> tuple[int, frozenset[str]]:
    return time, frozenset({str(value)})


def line(value: object, time: int) -> str:
    return f'<{EX}s> <{EX}p> "{value}" {time} .'


LINES = [one("a", 1), one("b", 2)]
TWO = f"{line('a', 1)}\n{line('b', 2)}\n"


# ---------------------------------------------------------------- lines with times


@pytest.mark.parametrize("media", [NT, NQ, "text/plain", "application/octet-stream", "", f"{NT}; charset=utf-8"])
@pytest.mark.parametrize(
    "body",
    [
        TWO,
        TWO.rstrip(),
        TWO.replace("\n", "\r\n"),
        f"\ufeff{TWO}",
        f"\n\n  \n{TWO}\n\t\n",
        f"# readings\n{TWO}  # the end\n",
        TWO.replace("\n", "   # a comment\n"),
        TWO.replace("\n", ""),
        TWO.replace("\n", " "),
        TWO.replace("\n", "\t"),
        TWO.replace(" .", "."),
        TWO.replace(" .\n", "\n"),
        TWO.replace('" ', '"^^<http://www.w3.org/2001/XMLSchema#string> '),
        TWO.replace('" 1', '" "1970-01-01T00:00:01Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>'),
    ],
)
def test_two_lines(push: Pushing, body: str, media: str) -> None:
    assert push(body, media) == Outcome(2)
    assert push.found() == LINES


@pytest.mark.parametrize("value", ["x .", "x .<y> .", "# x", "_:b .", '\\" .', "\\\\", "a\\nb 1 . ", "ü 👍 . <"])
def test_what_is_in_a_literal_does_not_end_a_line(push: Pushing, value: str) -> None:
    for body in (f"{line(value, 1)}{line(value, 2)}", f"{line(value, 1)} {line(value, 2)}", line(value, 1)):
        assert push(body) == Outcome(body.count(f"<{EX}s>"))
        shown = value.encode().decode("unicode_escape") if value.isascii() else value
        assert push.found() == [one(shown, number) for number in range(1, body.count(f"<{EX}s>") + 1)]


@pytest.mark.parametrize(
    "value", ["25", "-2.5", "1e3", "true", "<http://ex.org/o>", "_:b", '"x"@en', "9^^<http://ex.org/f>"]
)
def test_objects_that_are_numbers_and_others(push: Pushing, value: str) -> None:
    assert push(f"<{EX}s> <{EX}p> {value} 1 .") == Outcome(1)
    ((time, triples),) = push.elements()
    assert (time, len(triples)) == (SECOND, 1)


def test_triples_of_one_line_are_one_element(push: Pushing) -> None:
    assert push(f"{line('a', 1)} {line('b', 1)}\n{line('c', 2)}") == Outcome(2)
    assert push(f"{line('a', 1)} {line('b', 1)}") == Outcome(1)
    assert push.found() == [(1, frozenset("ab")), one("c", 2), (1, frozenset("ab"))]


@pytest.mark.parametrize("media", [NT, ""])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_malformed_line_costs_no_other(push: Pushing, media: str, end: str) -> None:
    lines = [
        "x",
        line("a", 1),
        "",
        f"<{EX}s> <{EX}p> 1 .",
        "# c",
        line("b", 2),
        f'<{EX}s> <{EX}p> "c 3 .',
        line("d", "x"),
    ]
    outcome = push(end.join(lines), media)
    assert (outcome.accepted, outcome.rejected) == (2, 4)
    assert [each["at"] for each in outcome.errors] == ["line 1", "line 4", "line 7", "line 8"]
    assert outcome.errors[0] == {
        "at": "line 1",
        "reason": "expected a subject, which is an IRI or a blank node, at column 1",
        "text": "x",
    }
    assert push.found() == LINES


def test_a_malformed_statement_of_one_long_line_costs_no_other(push: Pushing) -> None:
    outcome = push(f"{line('a', 1)}<{EX}s> <{EX}p> oh no .{line('b', 2)}")
    assert (outcome.accepted, outcome.rejected, outcome.errors[0]["at"]) == (2, 1, "line 2")
    assert push.found() == LINES


def test_all_rejected_are_counted_and_some_shown(push: Pushing) -> None:
    outcome = push("\n".join([line("a", 1), *["x"] * 1000, line("b", 2)]))
    assert (outcome.accepted, outcome.rejected, len(outcome.errors)) == (2, 1000, SHOWN)
    assert push.found() == LINES


def test_times_far_ahead_are_rejected(push: Pushing) -> None:
    far = (time_ns() + 2 * FUTURE) // SECOND
    outcome = push(f"{line('a', 1)}\n{line('x', far)}\n{line('b', 2)}")
    assert (outcome.accepted, outcome.rejected) == (2, 1)
    assert "beyond the wall clock" in outcome.errors[0]["reason"]
    assert push.found() == LINES


# ---------------------------------------------------------------- whole documents


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (f"<{EX}s> <{EX}p> 25 .", ""),
        (f"<{EX}s> <{EX}p> 25 .", NT),
        (f"<{EX}s> <{EX}p> 25 .", TTL),
        (f"\ufeff@prefix : <{EX}> . :s :p 25 .\r\n", TTL),
        (f"PREFIX : <{EX}>\n:s :p 25 .", "text/turtle;charset=UTF-8"),
        (f"[] <{EX}p> 25 .", ""),
        (f"[ <{EX}p> 25 ] .", ""),
        (f'<{EX}s> <{EX}p> "25"', NT),
        (f'<{EX}s> <{EX}p> "25" <{EX}g> .', NQ),
        (f'<{EX}s> <{EX}p> "25" <{EX}g> .', ""),
        (f"<{EX}g> {{ <{EX}s> <{EX}p> 25 }}", TRIG),
        (f"{{ <{EX}s> <{EX}p> 25 }}", ""),
        (f'{{"@context": {{"p": "{EX}p"}}, "@id": "{EX}s", "p": 25}}', JSONLD),
        (f'[{{"@id": "{EX}s", "{EX}p": 25}}]', ""),
        (f'{{"@id": "{EX}s", "{EX}p": 25}}', JSON),
    ],
)
def test_a_document_is_an_element_of_now_or_of_its_time(push: Pushing, body: str, media: str) -> None:
    before = time_ns()
    assert push(body, media) == Outcome(1)
    assert push(body, media, 7 * SECOND) == Outcome(1)
    (now, first), (then, second) = push.elements()
    assert before <= now <= time_ns()
    assert then == 7 * SECOND
    assert [each[0][2].value for each in (first, second)] == ["25", "25"]


@pytest.mark.parametrize(
    ("body", "media", "place", "reason"),
    [
        (f"<{EX}s> <{EX}p> 1 .\n<{EX}s> <{EX}p", TTL, "line 2", ""),
        (f"<{EX}s> <{EX}p> 1 .\nx\n", NT, "line 2", "expected a subject"),
        (b"<a:s> <a:p> '\xff' .", TTL, "line 1", "the text is not UTF-8"),
        ('{"@id": ', JSONLD, "line 1", ""),
        ('{"@context": "http://localhost:1/context", "a": 1}', JSONLD, "", "remote contexts are not fetched"),
        ("[" * 100_000, JSONLD, "", "nested too deeply"),
        ("<<" * 100_000, TTL, "", "a triple inside a triple"),
        (f'<{EX}g> <{PROV}> "2026-01-01T00:00:00Z"^^<{DATE_TIME}> . <{EX}g> {{ :s', TRIG, "line 1", ""),
        ("# nothing\n", TTL, "", "the element has no triple"),
        ("{}", JSONLD, "", "the element has no triple"),
    ],
)
def test_documents_that_are_none(push: Pushing, body: str | bytes, media: str, place: str, reason: str) -> None:
    outcome = push(body, media)
    assert (outcome.accepted, outcome.rejected) == (0, 1)
    assert outcome.errors[0]["at"] == place
    assert reason in outcome.errors[0]["reason"]
    assert push.elements() == []


def test_what_is_no_element_at_all(push: Pushing) -> None:
    for body in ("", " \r\n\t", "\ufeff"):
        with pytest.raises(DataError, match="nothing in the body"):
            push(body)
    for media in ("image/png", "text/turtle2", "multipart/form-data; boundary=x", "x" * 1000):
        with pytest.raises(UnknownMediaType, match=r"^the media type .{1,100} is not taken"):
            push(TWO, media)
    for media in (JSON, NDJSON, CSV):
        with pytest.raises(DataError, match="nothing says how records become triples"):
            push('{"a": 1}', media)


def test_a_time_is_said_once(push: Pushing) -> None:
    with pytest.raises(DataError, match="the lines have times, and the request has one"):
        push(TWO, NT, SECOND)
    assert push.elements() == []


@pytest.mark.parametrize("charset", ["iso-8859-1", '"ISO-8859-1"', "utf-16", "UTF-16LE", "windows-1252", "utf8"])
def test_other_charsets(push: Pushing, charset: str) -> None:
    body = f'<{EX}s> <{EX}p> "ü" 1 .'.encode(charset.strip('"'))
    assert push(body, f"{NT}; charset={charset}") == Outcome(1)
    assert push.found() == [one("ü", 1)]


def test_charsets_that_are_none(push: Pushing) -> None:
    with pytest.raises(UnknownMediaType, match="the charset rot13 is not taken"):
        push(TWO, f"{NT}; charset=rot13")
    with pytest.raises(DataError, match="the body is not utf-16"):
        push(b"\xff\xfe\x00\xd8", f"{NT}; charset=utf-16")


# ---------------------------------------------------------------- graphs with times

STATED = [f'<{EX}g{number}> <{PROV}> "1970-01-01T00:00:0{number}Z"^^<{DATE_TIME}> .' for number in (1, 2)]
TRIPLES = [f'<{EX}s> <{EX}p> "{value}"' for value in "ab"]
QUADS = "".join(f"{STATED[number]}\n{TRIPLES[number]} <{EX}g{number + 1}> .\n" for number in (0, 1))
GRAPHS = "".join(f"{STATED[number]} <{EX}g{number + 1}> {{ {TRIPLES[number]} }}\n" for number in (0, 1))
LINKED = json.dumps(
    {
        "@context": {"prov": PROV.removesuffix("generatedAtTime"), "p": f"{EX}p"},
        "@graph": [
            {
                "@id": f"{EX}g{number}",
                "prov:generatedAtTime": {"@value": f"1970-01-01T00:00:0{number}Z", "@type": DATE_TIME},
                "@graph": [{"@id": f"{EX}s", "p": value}],
            }
            for number, value in enumerate("ab", 1)
        ],
    }
)


@pytest.mark.parametrize(
    ("body", "media"),
    [(QUADS, NQ), (GRAPHS, TRIG), (LINKED, JSONLD), (QUADS, ""), (GRAPHS, ""), (LINKED, ""), (LINKED, JSON)],
)
def test_graphs_with_times_are_elements(push: Pushing, body: str, media: str) -> None:
    assert push(body, media) == Outcome(2)
    assert [(time, "a" in values, "b" in values) for time, values in push.found()] == [
        (1, True, False),
        (2, False, True),
    ]


def test_a_graph_without_a_time_costs_no_other(push: Pushing) -> None:
    outcome = push(f'{GRAPHS}<{EX}g3> {{ <{EX}s> <{EX}p> "c" }}', TRIG)
    assert (outcome.accepted, outcome.rejected) == (2, 1)
    assert outcome.errors[0]["reason"] == "the element has no timestamp"
    assert len(push.found()) == 2


def test_a_graph_whose_request_has_a_time_is_a_document(push: Pushing) -> None:
    assert push(GRAPHS, TRIG, 5 * SECOND) == Outcome(1)
    ((time, triples),) = push.elements()
    assert (time, len(triples)) == (5 * SECOND, 4)


# ---------------------------------------------------------------- streams of other kinds


def test_a_predicate_has_the_time(pool: ThreadPoolExecutor) -> None:
    push = pushing(pool, ServedStream(time=f"{EX}at", unit="s"))
    assert push(f"<{EX}s> <{EX}p> 'a' ; <{EX}at> 1 .", TTL) == Outcome(1)
    lines = [
        f'<{EX}{name}> <{EX}p> "{name}" .\n<{EX}{name}> <{EX}at> "{time}" .' for name, time in (("a", 1), ("b", 2))
    ]
    assert push("\n".join(lines), NT) == Outcome(2)
    assert push(f"<{EX}s> <{EX}p> 'a' .", TTL).rejected == 1
    assert push(f"<{EX}s> <{EX}p> 'a' .", TTL, 3 * SECOND) == Outcome(1)
    assert [time for time, _ in push.found()] == [1, 1, 2, 3]


def test_times_do_not_count_where_elements_have_that_of_their_arrival(pool: ThreadPoolExecutor) -> None:
    push, before = pushing(pool, ARRIVES), time_ns()
    for body, media, elements in ((TWO, NT, 2), (TWO.replace("\n", ""), "", 2), (GRAPHS, TRIG, 1), (QUADS, NQ, 1)):
        assert push(body, media) == Outcome(elements)
    outcome = push(f"{line('a', 1)}\nx\n{line('b', 2)}")
    assert (outcome.accepted, outcome.rejected, outcome.errors[0]["at"]) == (2, 1, "line 2")
    times = [time for time, _ in push.elements()]
    assert len(times) == 8
    assert all(before <= time <= time_ns() for time in times)


# ---------------------------------------------------------------- blank nodes


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (f"_:b <{EX}p> _:b 1 .", NT),
        (f"_:b <{EX}p> _:b .", NT),
        (f"_:b <{EX}p> _:b .", TTL),
        (f"_:b <{EX}p> _:b <{EX}g> .", NQ),
        (f'{{"@id": "_:b", "{EX}p": {{"@id": "_:b"}}}}', JSONLD),
    ],
)
def test_blank_nodes_of_several_pushes_are_kept_apart(push: Pushing, body: str, media: str) -> None:
    pushes = [(body, media, None)] * 20
    assert push.all(pushes) == [Outcome(1)] * 20
    assert push.all(pushes) == [Outcome(1)] * 20
    elements = push.elements()
    assert all(isinstance(s, BlankNode) and s == o for _, ((s, _, o),) in elements)
    assert len({triples[0][0] for _, triples in elements}) == 40


def test_blank_nodes_of_one_push_are_the_same(push: Pushing) -> None:
    assert push(f"_:b <{EX}p> 'a' 1 .\n_:b <{EX}p> 'b' 2 .".replace("'", '"')) == Outcome(2)
    (_, first), (_, second) = push.elements()
    assert first[0][0] == second[0][0]


# ---------------------------------------------------------------- records

ROWS = [{"id": "a", "v": "a", "at": 1}, {"id": "b", "v": "b", "at": 2}]
TEXTS = [json.dumps(row) for row in ROWS]


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (f"[{TEXTS[0]}, {TEXTS[1]}]", JSON),
        (f"\ufeff [\r\n{TEXTS[0]}\r\n,{TEXTS[1]} ]\r\n", JSON),
        (json.dumps(ROWS, indent=2), ""),
        ("".join(TEXTS), JSON),
        ("".join(TEXTS), ""),
        ("".join(TEXTS), NDJSON),
        (" ".join(TEXTS), "application/json; charset=utf-8"),
        ("\n".join(TEXTS), NDJSON),
        ("\n".join(TEXTS), JSON),
        ("\r\n\r\n".join(TEXTS) + "\r\n", "application/jsonl"),
        ("id,v,at\na,a,1\nb,b,2\n", CSV),
        ("id,v,at\r\na,a,1\r\n\r\nb,b,2", f"{CSV}; charset=utf-8; header=present"),
        ('\ufeff\nat,"v",id\n1,"a",a\n2,b,b\n', CSV),
        ('"at","v","more\nnames",id\n1,"a",,a\n2,b,,b\n', CSV),
    ],
)
def test_two_records(records: Pushing, body: str, media: str) -> None:
    assert records(body, media) == Outcome(2)
    assert records.found() == LINES


def test_one_record(records: Pushing) -> None:
    for body in (TEXTS[0], json.dumps(ROWS[0], indent=2), f"[{TEXTS[0]}]"):
        assert records(body, JSON) == Outcome(1)
    assert records.found() == LINES[:1] * 3
    assert records(TEXTS[0], JSON, 9 * SECOND) == Outcome(1)
    assert records.found() == [one("a", 9)]


def test_no_records(records: Pushing) -> None:
    for body, media in (("[]", JSON), ("id,v,at\n", CSV), ("[ ]", "")):
        assert records(body, media) == Outcome(0)
    assert records.elements() == []


def test_numbers_stay_as_they_are_written(records: Pushing) -> None:
    written = ["1.10", "12345678901234567890123", "-0"]
    alone = [f'{{"id": "a", "v": {each}, "at": 1}}' for each in written]
    assert records(f"[{', '.join(alone)}]", JSON) == Outcome(3)
    together = records.elements()
    for each in alone:
        records(each, JSON)
    assert records.elements() == together


@pytest.mark.parametrize(
    ("body", "media", "places"),
    [
        (f"{TEXTS[0]}\nx\n\n[1]\n{TEXTS[1]}\n{{}}", NDJSON, ["line 2", "line 4", "line 6"]),
        (f'[{TEXTS[0]}, 5, null, {TEXTS[1]}, {{"id": "c"}}]', JSON, ["record 2", "record 3", "record 5"]),
        (f'{TEXTS[0]}{{"id": "c", "at": "x"}}{TEXTS[1]}', JSON, ["record 2"]),
        (f'{TEXTS[0]}\n{{"id": "c\n{TEXTS[1]}', JSON, ["line 2"]),
        ("id,v,at\na,a,1\nx\n\nc,c,x\nb,b,2\n", CSV, ["line 3", "line 5"]),
        ('id,v,at\na,"a",1\n"c,3\nb,b,2\n', CSV, ["line 3"]),
    ],
)
def test_a_malformed_record_costs_no_other(records: Pushing, body: str, media: str, places: list[str]) -> None:
    outcome = records(body, media)
    assert (outcome.accepted, outcome.rejected) == (2, len(places))
    assert [each["at"] for each in outcome.errors] == places
    assert all(each["reason"] for each in outcome.errors)
    assert records.found() == LINES


@pytest.mark.parametrize(
    "body", ["[", f"[{TEXTS[0]}", f"[{TEXTS[0]}] x", f"[{TEXTS[0]},]", "{", '"x"', "[" * 100_000, "\x00"]
)
def test_json_that_is_none(records: Pushing, body: str) -> None:
    outcome = records(body, JSON)
    assert (outcome.accepted, outcome.rejected) == (0, 1)
    assert records.elements() == []


def test_csv_without_its_columns(records: Pushing) -> None:
    for body, reason in (
        ("id,v\na,a\n", "no column 'at'"),
        ("id,v,at,v\na,a,1,a\n", "two columns 'v'"),
        ('id,"v\n', "CSV"),
    ):
        with pytest.raises(DataError, match=reason):
            records(body, CSV)


# ---------------------------------------------------------------- many at once


def test_pushes_that_are_lifted_together_are_told_apart(push: Pushing) -> None:
    far = (time_ns() + 2 * FUTURE) // SECOND
    bodies = [
        line("a", 1),
        line("x", far),
        f"x\n{line('b', 2)}",
        "x y z",
        f"# c\n\n{line('c', 3)}\n",
        f"{line('x', far)}\nx\n{line('d', 4)}",
    ] * 20
    outcomes = push.all([(body, NT, None) for body in bodies])
    assert [(each.accepted, each.rejected) for each in outcomes if isinstance(each, Outcome)] == [
        (1, 0), (0, 1), (1, 1), (0, 1), (1, 0), (1, 2)
    ] * 20  # fmt: skip
    assert [each.errors[0]["at"] for each in outcomes[2:4]] == ["line 1", "line 1"]  # type: ignore[union-attr]
    assert sorted(push.found()) == sorted([one(value, time) for time, value in enumerate("abcd", 1)] * 20)


def test_a_refused_push_does_not_cost_those_beside_it(push: Pushing) -> None:
    outcomes = push.all(
        [(line("a", 1), NT, None), ("x", "image/png", None), (TWO, NT, SECOND), (line("b", 2), NT, None)]
    )
    assert [outcomes[0], outcomes[3]] == [Outcome(1), Outcome(1)]
    assert isinstance(outcomes[1], UnknownMediaType)
    assert isinstance(outcomes[2], DataError)
    assert push.found() == LINES


def test_a_full_inbox_is_said_to_those_who_wait_for_it(pool: ThreadPoolExecutor) -> None:
    def full(messages: Sequence[Message]) -> None:
        raise InboxFull("the inbox is full")

    push = Pushing(Reception(f"{EX}obs", PushFormats(ServedStream(), None), full, future=None, pool=pool))
    taken, refused = push.all([(TWO, NT, None), ("x", "image/png", None)])
    assert isinstance(taken, Busy)
    assert isinstance(refused, UnknownMediaType)
    assert push.reception.counts.elements == 0


@dataclass
class Mix:
    """The body of a push, how many of its elements are good and bad, and what the good ones are."""

    body: str
    media: str
    good: list[str]
    bad: int


_BAD_LINES = [
    "x",
    f"<{EX}s>",
    f"<{EX}s> <{EX}p> .",
    f'<{EX}s> <{EX}p> "x .',
    f'"x" <{EX}p> "x" 1 .',
    f'<{EX}s> <{EX}p> "x" "y" .',
]
_BAD_RECORDS = ["x", "{", "[]", "5", '{"id": "a"', "{}", '{"v": "a"}', '{"id": {}, "v": "x"}']
_BAD_ROWS = ["x", "x,y", "s,x,y", ",".join("abcdef")]
_BAD_DOCUMENTS = {TTL: ["x", f"<{EX}s> <{EX}p> .", "<a:b>", ""], JSONLD: ["{", "x", '{"@id": 5}', "{}"]}
_numbers = count()


@st.composite
def mixes(draw: st.DrawFn) -> Mix:
    """A push of good and bad elements in some order, whose values nobody else has."""
    form = draw(st.sampled_from([NT, "", TTL, JSONLD, NDJSON, JSON, CSV]))
    kinds = [True, *draw(st.lists(st.booleans(), max_size=6))]
    if form in (TTL, JSONLD):
        kinds = [draw(st.booleans())]
    good = [f"v{next(_numbers)}" for kind in kinds if kind]
    values = iter(good)

    def joined(texts: dict[bool, Any], between: str, blank: Sequence[str] = ()) -> str:
        made = []
        for kind in draw(st.permutations(kinds)):
            made += draw(st.lists(st.sampled_from(blank), max_size=1)) if blank else []
            made.append(texts[True](next(values)) if kind else draw(st.sampled_from(texts[False])))
        return between.join(made)

    end = draw(st.sampled_from(["\n", "\r\n"]))

    def record(value: str) -> str:
        return json.dumps({"id": "s", "v": value, "at": 1})

    match form:
        case "application/n-triples" | "":
            body = joined({True: lambda value: line(value, 1), False: _BAD_LINES}, end, ["", "# c", " \t"])
        case "text/turtle":
            body = joined(
                {
                    True: lambda value: f'<{EX}s> <{EX}p> "{value}" .',
                    False: [f"{each} " for each in _BAD_DOCUMENTS[TTL]],
                },
                "",
            )
        case "application/ld+json":
            body = joined(
                {True: lambda value: f'{{"@id": "{EX}s", "{EX}p": "{value}"}}', False: _BAD_DOCUMENTS[JSONLD]}, ""
            )
        case "application/x-ndjson":
            body = (
                joined(
                    {True: record, False: _BAD_RECORDS},
                    end,
                    ["", " "],
                )
                + end
            )
        case "application/json":
            whole = [each for each in _BAD_RECORDS if each not in ("x", "{", '{"id": "a"')]
            body = f"[{joined({True: record, False: whole}, f',{end}')}]"
        case _:
            body = f"id,v,at{end}" + joined({True: lambda value: f"s,{value},1", False: _BAD_ROWS}, end, [""])
    mark = draw(st.sampled_from(["", "\ufeff"]))
    if not body.strip():
        body = "x"
    return Mix(mark + body, form, good, len(kinds) - len(good))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    service = Service(Pipeline(store=Store(), settings=LiveSettings(lasting=True)), tmp_path_factory.mktemp("state"))
    with Server(service, Address(port=0)) as server:
        yield server


QUERY = f"SELECT ?o WHERE {{ STREAM <obs> [RANGE 100h] {{ <{EX}s> <{EX}p> ?o }} }}"


def values_of(results: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(each["bindings"]["o"]["value"] for each in results)


@settings(max_examples=12)
@given(st.lists(mixes(), min_size=1, max_size=20))
def test_concurrent_pushes_are_counted_exactly_and_arrive_exactly(server: Server, mixes: list[Mix]) -> None:
    """The results of a query are those of the embedded engine over the good elements."""
    _check(server, mixes)


@pytest.mark.fuzz
@settings(max_examples=MANY)
@given(st.lists(mixes(), min_size=1, max_size=50))
def test_many_concurrent_pushes(server: Server, mixes: list[Mix]) -> None:
    _check(server, mixes)


def _check(server: Server, mixes: Sequence[Mix]) -> None:
    name = f"s{next(_numbers)}"
    wanted = [value for mix in mixes for value in mix.good]
    with httpx.Client(base_url=server.url, timeout=30) as http, ThreadPoolExecutor(6) as pool:
        declared = http.put(f"/streams/{name}", json={"unit": "s", "template": TIMED})
        assert declared.status_code == 201, declared.text
        assert http.put(f"/queries/q{name}", content=QUERY.replace("obs", name)).status_code == 201

        def send(mix: Mix) -> httpx.Response:
            headers = {"Content-Type": mix.media} if mix.media else {}
            params = {"time": "1s"} if mix.media in (TTL, JSONLD) else {}  # as all others, so that none is late
            return http.post(f"/streams/{name}", content=mix.body.encode(), headers=headers, params=params)

        for mix, answer in zip(mixes, pool.map(send, mixes), strict=True):
            assert answer.status_code == (200 if mix.good else 400), (mix, answer.text)
            told = answer.json()
            assert (told["accepted"], told["rejected"]) == (len(mix.good), mix.bad), (mix, told)
            assert len(told.get("errors", [])) == min(mix.bad, SHOWN)
        counts = http.get(f"/streams/{name}").json()["counts"]
        assert (counts["elements"], counts["rejected"]) == (len(wanted), sum(mix.bad for mix in mixes))
        found: list[dict[str, Any]] = []
        number = -1
        while len(found) < len(wanted):
            params = {"wait": "10s", **({"from": "start"} if number < 0 else {"after": number})}
            told = http.get(f"/queries/q{name}/results", params=params, headers={"Accept": JSON}).json()
            assert told["results"], (len(found), len(wanted))
            found, number = found + told["results"], told["last"]
        assert http.post("/checkpoint").status_code == 200
        more = http.get(f"/queries/q{name}/results", params={"wait": "0s", "after": number}, headers={"Accept": JSON})
        assert number < 0 or more.json()["results"] == []
        assert http.delete(f"/queries/q{name}").status_code == 204
    with cqels.Engine() as engine:
        engine.stream(f"{EX}{name}")
        query = engine.register(QUERY.replace("obs", f"{EX}{name}"), name="q")
        for value in wanted:
            engine.push(f"{EX}{name}", [(NamedNode(f"{EX}s"), NamedNode(f"{EX}p"), Literal(value))], SECOND)
        expected = sorted(result["o"].value for result in query.take())
    assert values_of(found) == expected == sorted(wanted)
