"""A text means the same on every way in: pushed, in a file, or as the message of a live source."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest

from cqels import Engine
from cqels.ingest import parse_declaration
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import CqelsError
from cqels.pipeline.lift.block_format import unpack
from cqels.pipeline.lift.declared_lift import lift_of
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.lift.row_lifts import Lifting
from cqels.pipeline.source.inbox import Inbox
from cqels.pipeline.source.live_source import Message

STREAM = "http://ex.org/s"
ALL = PushedPatterns(frozenset([ANYTHING]))
Elements = list[tuple[int, list[str]]]


def lifted(declared: str, *values: str, folder: Path) -> tuple[Elements, list[tuple[str, str]]]:
    """The elements of messages that came at 1 s, 2 s …, by way of an inbox, and what was rejected."""
    lift = lift_of(parse_declaration(f"<{STREAM}>={declared}"))
    with Inbox(folder / "inbox", place="p") as inbox:
        inbox.append([Message(value.encode(), (number + 1) * 10**9) for number, value in enumerate(values)])
        rows, _ = inbox.read(0, 1 << 20)
    terms = Terms(ArenaDictionary(Arena(size=1 << 26)))
    elements: Elements = []
    rejected = []
    for batch in Lifting(STREAM, 0, lift, (ALL,)).blocks(iter([rows])):
        for row in batch.to_pylist():
            if row["kind"] == "rejected":
                rejected.append((row["place"], row["reason"]))
                continue
            for time, _, triples in unpack(row["block"], terms.dictionary).rows():
                elements.append((time // 10**6, [" ".join(str(terms.decode(each)) for each in t) for t in triples]))
    return elements, rejected


def pushed(text: str, time: int | None) -> Elements:
    with Engine() as engine:
        engine.stream(STREAM)
        query = engine.register(f"SELECT ?s ?p ?o WHERE {{ STREAM <{STREAM}> [NOW] {{ ?s ?p ?o }} }}")
        engine.push(STREAM, text, time)
        engine.finish()
        found = [(each.nanoseconds // 10**6, " ".join(map(str, each.values))) for each in query.results()]
    times = dict.fromkeys(time for time, _ in found)
    return [(time, [text for at, text in found if at == time]) for time in times]


TEXTS = [
    "<x:s> <x:p> 21 .",
    '<x:s> <x:p> "21"^^<http://www.w3.org/2001/XMLSchema#integer> .\n<x:s> <x:q> <x:o> .',
    "PREFIX : <x:>\n:s :p 21.5, true ; a :T .",
    "@prefix : <x:> . :s :p 'a' .",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("how", ["time=source", "clock=arrival", "time=source&format=turtle"])
def test_a_message_is_what_can_be_pushed_at_a_time(text: str, how: str, tmp_path: Path) -> None:
    found, rejected = lifted(f"mqtt://h/t?{how}", text, folder=tmp_path)
    assert not rejected
    assert [(time, sorted(triples)) for time, triples in found] == [
        (time, sorted(triples)) for time, triples in pushed(text, 10**9)
    ]


@pytest.mark.parametrize("text", ["<x:s> <x:p> 21 1000 .\n<x:s> <x:p> 22 2000 .", "<x:s> <x:p> 'a' 3000 ."])
def test_lines_with_times(text: str, tmp_path: Path) -> None:
    found, rejected = lifted("tcp://h:1", text, folder=tmp_path)
    assert not rejected
    assert found == pushed(text, None)


def test_arrival_time_goes_before_one_that_a_line_carries(tmp_path: Path) -> None:
    text = "<x:s> <x:p> 21 7000 ."
    assert lifted("mqtt://h/t?clock=arrival", text, folder=tmp_path)[0] == [
        (1000, ['<x:s> <x:p> "21"^^<http://www.w3.org/2001/XMLSchema#integer>'])
    ]
    found, rejected = lifted("mqtt://h/t?time=source", text, folder=tmp_path / "own")
    assert (found, rejected) == ([], [("p@1", "a line has a time, and so has its row")])


TEMPLATE = """
subject = "x:{sensor}"
[time]
column = "at"
[predicates]
"x:temp" = { column = "t", datatype = "http://www.w3.org/2001/XMLSchema#integer" }
"""


def test_records(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(TEMPLATE)
    template = f"template={tmp_path / 't.toml'}"
    expected = [(4, ['<x:a> <x:temp> "21"^^<http://www.w3.org/2001/XMLSchema#integer>'])]
    for number, (options, value) in enumerate(
        [
            ("", '{"sensor": "a", "t": 21, "at": 4}'),
            ("&format=csv", "at,t,sensor\n4,21,a"),
            ("&columns=sensor,t,at", "a,21,4"),
        ]
    ):
        assert lifted(f"mqtt://h/t?{template}{options}", value, folder=tmp_path / str(number)) == (expected, [])
    found, rejected = lifted(f"mqtt://h/t?{template}&format=csv", "at,t\n4,21", folder=tmp_path / "bad")
    assert (found, rejected) == ([], [("p@1", "the file has no column 'sensor'")])
    own, _ = lifted(f"mqtt://h/t?{template}&time=source", '{"sensor": "a", "t": 21}', folder=tmp_path / "own")
    assert own == [(1000, expected[0][1])]


@pytest.mark.parametrize(
    ("declared", "message", "hint"),
    [
        ("mqtt://me:abc@h/t?format=turtle", "stream <x:s> has no time", "time=source"),
        ("mqtt://me:abc@h/t?format=json", "nothing says how the records", "template="),
        ("mqtt://me:abc@h/t?format=parquet", "Parquet is read from files", "json"),
        ("mqtt://me:abc@h/t?format=trig&element=graph&time=source", "element=graph does not fit", "leave it out"),
    ],
)
def test_declarations_that_give_no_element(declared: str, message: str, hint: str) -> None:
    with pytest.raises(CqelsError, match=message) as caught:
        lift_of(parse_declaration(f"<x:s>={declared}"))
    assert hint in str(caught.value)
    assert "abc" not in str(caught.value)


def test_rows_have_the_columns_of_all_live_sources(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        assert isinstance(inbox.read(0, 1)[0], pyarrow.RecordBatch)
