"""The engine's face: what can be pushed, how results are taken, and what is said when something is not right."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyoxigraph import Literal, NamedNode, Triple

import cqels
from cqels.engine.file_replay import replay
from cqels.ingest import Rejected, declare, late_reason
from cqels.kernels.containers import row_storage
from cqels.kernels.operators import join
from cqels.plan.prepare import prepare
from cqels.results import Result
from cqels.store.dataset import Store

EX = "http://ex.org/"
OBS = EX + "obs"
HOT = f"PREFIX : <{EX}> SELECT ?s ?t WHERE {{ STREAM :obs [RANGE 10s] {{ ?s :temp ?t }} FILTER(?t > 30) }}"
ROOMS = (
    f"PREFIX : <{EX}> SELECT ?room (COUNT(*) AS ?n) "
    "WHERE { STREAM :obs [RANGE 10s] { ?s :temp ?t } ?s :in ?room } GROUP BY ?room"
)


def node(name: str) -> NamedNode:
    return NamedNode(EX + name)


def reading(sensor: str, value: int) -> str:
    return f"<{EX}{sensor}> <{EX}temp> {value} ."


def timed(sensor: str, value: int, time: str) -> str:
    return f'<{EX}{sensor}> <{EX}temp> "{value}"^^<http://www.w3.org/2001/XMLSchema#integer> {time} .'


def values(results: list[Result]) -> list[tuple[str, ...]]:
    return [tuple("" if term is None else term.value.removeprefix(EX) for term in result.values) for result in results]


# ---------------------------------------------------------------- what can be pushed


def test_one_element_in_all_its_forms() -> None:
    with cqels.Engine() as engine:
        query = engine.register(HOT)
        value = Literal(31)
        engine.push(OBS, reading("a", 31), time="1s")
        engine.push(OBS, reading("b", 31).encode(), time=2_000_000_000)
        engine.push(OBS, [Triple(node("c"), node("temp"), value)], time=datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC))
        engine.push(OBS, [(node("d"), node("temp"), value), (node("e"), node("temp"), value)], time="4s")
        engine.push(OBS, f"@prefix : <{EX}> . :f :temp 33 ; :temp 34 .", time="5s")
        results = query.take()
    assert values(results) == [
        ("a", "31"),
        ("b", "31"),
        ("c", "31"),
        ("d", "31"),
        ("e", "31"),
        ("f", "33"),
        ("f", "34"),
    ]
    assert [result.nanoseconds // 10**9 for result in results] == [1, 2, 3, 4, 4, 5, 5]


def test_a_block_is_its_elements_one_by_one() -> None:
    times = ["1s", "2s", "2s", "20s"]
    data = [
        reading("a", 31),
        reading("b", 32) + "\n" + reading("c", 33),
        f'<{EX}d> <{EX}temp> "40"^^<{EX}odd> .',
        reading("e", 35),
    ]
    with cqels.Engine() as engine, cqels.Engine() as other:
        one, two = engine.register(HOT, emit="changes"), other.register(HOT, emit="changes")
        engine.push(OBS, data, times)
        for text, time in zip(data, times, strict=True):
            other.push(OBS, text, time)
        assert one.take() == two.take()


def test_lines_that_carry_their_times() -> None:
    rejected: list[Rejected] = []
    with cqels.Engine(reject=rejected.append) as engine:
        query = engine.register(HOT)
        lines = [
            timed("a", 31, "1000"),
            "",
            "nonsense",
            timed("b", 32, '"1970-01-01T00:00:02Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>'),
        ]
        engine.push(OBS, "\n".join(lines))
        assert values(query.take()) == [("a", "31"), ("b", "32")]
    (one,) = rejected
    assert one.place == f"<{OBS}>:3"
    assert one.text == "nonsense"


@pytest.mark.parametrize(
    ("stream", "data", "time", "message"),
    [
        (EX + "other", reading("a", 1), "1s", "stream <http://ex.org/other> is not registered"),
        (OBS, "", "1s", "an element has at least one triple"),
        (OBS, "nonsense", "1s", "the data is neither N-Triples nor Turtle"),
        (OBS, reading("a", 1), "soon", "soon"),
        (OBS, [reading("a", 1)], ["1s", "2s"], "there are 1 elements and 2 times"),
        (OBS, [reading("a", 1), ""], ["1s", "2s"], "element 2 of the block has no triple"),
        (OBS, [(node("a"), node("temp"), Literal(1))], None, "the element has no time"),
    ],
)
def test_what_cannot_be_pushed(stream: str, data: object, time: object, message: str) -> None:
    with cqels.Engine() as engine:
        engine.register(HOT)
        with pytest.raises(cqels.CqelsError, match=message):
            engine.push(stream, data, time)  # type: ignore[arg-type]


def test_late_elements_are_counted_and_told() -> None:
    rejected: list[Rejected] = []
    with cqels.Engine(reject=rejected.append) as engine:
        engine.stream(OBS, lateness="2s")
        query = engine.register(HOT)
        for time in ("5s", "4s", "9s", "6s", "8s"):
            engine.push(OBS, reading("s" + time, 31), time=time)
        engine.finish()
        assert values(query.take()) == [("s4s", "31"), ("s5s", "31"), ("s8s", "31"), ("s9s", "31")]
        assert engine.late == 1
    assert rejected[0].reason == (
        "the element of 6s is late by 1s (the watermark is 7s): its stream was ahead, a larger lateness= waits"
    )


def test_blocks_of_several_streams_are_merged_by_time() -> None:
    """Pushed one by one, what one stream has before the end of the other is late, with the word that helps."""
    other = "http://ex.org/other"
    join = f"SELECT ?s WHERE {{ STREAM <{OBS}> [NOW] {{ ?s ?p ?o }} STREAM <{other}> [NOW] {{ ?s ?q ?o }} }}"
    times = [1000 * n for n in range(100)]
    texts = [f"<http://ex.org/s{n}> <http://ex.org/p> <http://ex.org/o> ." for n in range(100)]
    lines = "".join(f"{text.removesuffix('.')}{time} .\n" for text, time in zip(texts, times, strict=True))
    rejected: list[Rejected] = []
    with cqels.Engine(reject=rejected.append) as engine:
        query = engine.register(join)
        engine.push({OBS: lines, other: (texts, [f"{time}ms" for time in times])})
        assert len(query.take()) == 100
        assert not rejected
        with pytest.raises(cqels.CqelsError, match="have their data and times"):
            engine.push({OBS: lines}, time="4s")
        with pytest.raises(cqels.CqelsError, match="is not registered"):
            engine.push({OBS: lines, "http://ex.org/none": lines})
    with cqels.Engine(reject=rejected.append) as engine:
        query = engine.register(join)
        engine.push(OBS, lines)
        engine.push(other, lines)
        assert (len(query.take()), engine.late) == (1, 99)
    assert rejected[0].reason == (
        "the element of 0s is late by 99s (the watermark is 99s): other streams were ahead, "
        "idle= waits for this one; or push blocks of several streams in one call"
    )


def test_terms_of_late_elements_are_kept_until_they_are_told_of() -> None:
    """Terms are collected while the batch of a late element is processed: those of the element are needed after it."""
    rejected: list[Rejected] = []
    with cqels.Engine(reject=rejected.append) as engine:
        engine.register(f"SELECT * WHERE {{ STREAM <{OBS}> [NOW] {{ ?s <x:p> ?o }} }}", name="q")
        engine.push(OBS, b"<x:first> <x:p> <x:o> 10000000 .")
        for start in range(0, 400_000, 40_000):
            lines = [f"<x:s{number}> <x:p> <x:o> {10_000_000 + start} ." for number in range(start, start + 40_000)]
            engine.push(OBS, "\n".join([f"<x:late{start}> <x:p> <x:o> 1 .", *lines]).encode())
        assert engine.internals.core.collector.released
    assert [each.text for each in rejected] == [f"<x:late{start}> <x:p> <x:o> ." for start in range(0, 400_000, 40_000)]


def test_what_is_late_or_malformed_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Without a function for it: the first ones of each stream in full, then how many there are, and at the end."""
    other = EX + "other"
    with cqels.Engine() as engine:
        query = engine.register(HOT)
        engine.stream(other)
        engine.push(OBS, f"nonsense\n{timed('a', 31, '9000')}")
        engine.push(other, reading("b", 31), time="20s")
        for _ in range(12):
            engine.push(OBS, reading("c", 31), time="10s")
        engine.push(other, reading("b", 31), time="17s")
        assert values(query.take()) == [("a", "31")]
        assert engine.late == 13
    assert [record.name for record in caplog.records] == ["cqels"] * len(caplog.records)
    late, own = (late_reason(time * 10**9, 20 * 10**9, own=own) for time, own in ((10, False), (17, True)))
    assert caplog.messages == [
        f"rejected: <{OBS}>:1: expected a subject, which is an IRI or a blank node, at column 1",
        *[f"rejected: <{OBS}>: {late}"] * 4,
        f"rejected: 10 elements of stream <{OBS}> were rejected or late so far; the last: <{OBS}>: {late}",
        f"rejected: <{other}>: {own}",
        f"rejected: 13 elements of stream <{OBS}> were rejected or late",
    ]


def test_a_time_far_in_the_future_makes_nothing_late() -> None:
    """It is rejected where it is pushed, by the wall clock; logical times are long past."""
    now, day = 10**18, 86_400 * 10**9
    rejected: list[Rejected] = []
    with cqels.Engine(now=lambda: now, reject=rejected.append) as engine:
        engine.stream("http://ex.org/far", future=None)
        query = engine.register(HOT)
        for time in (5, now, now + 2 * day, now + day, now + 1):
            engine.push(OBS, reading(f"s{time}", 31), time=time)
        engine.push(OBS, [reading("a", 31), reading("b", 31)], [now + day + 1, now + day])
        engine.push({OBS: ([reading("c", 31), reading("d", 31)], [now + 3 * day, now + day])})
        assert [row[0] for row in values(query.take())] == ["s5", f"s{now}", f"s{now + day}", "b", "d"]
        assert engine.late == 1
        engine.push("http://ex.org/far", reading("e", 31), time=now + 100 * day)
    assert [each.reason for each in rejected if "beyond" in each.reason][1:] == [
        "the time 2001-09-10T01:46:40.000000001Z is more than 1d beyond the wall clock: a larger future= takes it",
        "the time 2001-09-12T01:46:40Z is more than 1d beyond the wall clock: a larger future= takes it",
    ]
    assert len(rejected) == 4


def test_arrival_time() -> None:
    moments = iter([10**9, 2 * 10**9, 2 * 10**9])  # the last one when results are taken
    with cqels.Engine(now=lambda: next(moments)) as engine:
        engine.stream(OBS, clock="arrival")
        query = engine.register(HOT)
        engine.push(OBS, reading("a", 31))
        engine.push(OBS, reading("b", 31), time="77s")
        assert [result.nanoseconds for result in query.results()] == [10**9, 2 * 10**9]


# ---------------------------------------------------------------- queries


def test_queries_come_and_go() -> None:
    with cqels.Engine() as engine:
        first = engine.register(HOT, name="first")
        engine.push(OBS, reading("a", 31), time="1s")
        second = engine.register(HOT, name="second")
        engine.push(OBS, reading("b", 32), time="2s")
        first.drop()
        engine.push(OBS, reading("c", 33), time="3s")
        assert values(first.take()) == [("a", "31"), ("b", "32")]
        assert values(second.take()) == [("b", "32"), ("c", "33")]
        assert [query.name for query in engine.queries] == ["second"]
        with pytest.raises(cqels.CqelsError, match="there is no query first"):
            engine.drop("first")
        with pytest.raises(cqels.CqelsError, match="there is a query second already"):
            engine.register(HOT, name="second")


def test_a_query_that_others_read_stays() -> None:
    with cqels.Engine() as engine:
        made = engine.register(
            f"PREFIX : <{EX}> REGISTER STREAM :hot AS CONSTRUCT {{ ?s :hot ?t }} WHERE "
            "{ STREAM :obs [NOW] { ?s :temp ?t } FILTER(?t > 30) }"
        )
        reader = engine.register(f"PREFIX : <{EX}> SELECT ?s WHERE {{ STREAM :hot [ALL] {{ ?s :hot ?t }} }}")
        engine.push(OBS, [reading("a", 31), reading("b", 3)], ["1s", "2s"])
        assert values(reader.take()) == [("a",)]
        with pytest.raises(cqels.CqelsError, match="read by query-1"):
            made.drop()
        with pytest.raises(cqels.CqelsError, match="made by a query"):
            engine.push(EX + "hot", reading("a", 31), "4s")
        reader.drop()
        made.drop()


def test_a_variable_that_is_bound_nowhere() -> None:
    slip = HOT.replace("?s ?t WHERE", "?s ?temp WHERE")
    with cqels.Engine() as engine:
        with pytest.raises(cqels.CqelsError, match=r"\?temp is selected but no pattern binds it"):
            engine.register(slip)
        query = engine.register(slip, lenient=True)
        engine.push(OBS, reading("a", 31), time="1s")
        assert [row.temp for row in query] == [None]
        assert [warning.message for warning in query.query.warnings] == ["?temp is selected but no pattern binds it"]


def test_a_callback_gets_results_as_they_come() -> None:
    seen: list[Result] = []
    with cqels.Engine() as engine:
        query = engine.register(HOT, callback=seen.append)
        engine.push(OBS, reading("a", 31), time="1s")
        assert values(seen) == [("a", "31")]
        query.on_result(None)
        engine.push(OBS, reading("b", 31), time="2s")
        assert len(seen) == 1
        assert values(query.take()) == [("b", "31")]


def test_a_file_with_a_query(tmp_path: Path) -> None:
    path = tmp_path / "hot.rq"
    path.write_text(HOT)
    bad = tmp_path / "bad.rq"
    bad.write_text("SELECT * WHERE { ?s }")
    with cqels.Engine() as engine:
        assert engine.register(path).variables == ("s", "t")
        assert engine.register(str(path)).variables == ("s", "t")
        with pytest.raises(cqels.CqelsError) as error:
            engine.register(bad)
    assert f"{bad}:1:" in str(error.value)


def test_static_data_changes_while_streams_run(tmp_path: Path) -> None:
    path = tmp_path / "rooms.ttl"
    path.write_text(f"@prefix : <{EX}> . :a :in :kitchen .")
    with cqels.Engine() as engine:
        assert engine.load(path) == 1
        query = engine.register(ROOMS, emit="changes")
        engine.push(OBS, reading("a", 1), time="1s")
        engine.push(OBS, reading("b", 1), time="2s")
        engine.update(f"PREFIX : <{EX}> INSERT DATA {{ :b :in :kitchen }}")
        results = query.take()
    assert [(result.sign, *row) for result, row in zip(results, values(results), strict=True)] == [
        ("+", "kitchen", "1"),
        ("-", "kitchen", "1"),
        ("+", "kitchen", "2"),
    ]


# ---------------------------------------------------------------- tables


def test_results_as_tables() -> None:
    pytest.importorskip("pyarrow")
    with cqels.Engine() as engine:
        query = engine.register(HOT)
        engine.push(OBS, [reading("a", 31), reading("b", 40)], ["1s", "2s"])
        table = query.arrow()
        assert table.column_names == ["time", "tick", "sign", "s", "t"]
        assert table["t"].to_pylist() == [31, 40]
        assert table["s"].to_pylist() == [EX + "a", EX + "b"]
        assert query.arrow().num_rows == 0
        engine.push(OBS, reading("c", 50), "3s")
        pytest.importorskip("pandas")
        assert query.pandas()["t"].tolist() == [50]
        engine.push(OBS, reading("d", 60), "4s")
        pytest.importorskip("polars")
        assert query.polars()["t"].to_list() == [60]


def test_results_as_columns_of_terms() -> None:
    pytest.importorskip("pyarrow")
    xsd = "http://www.w3.org/2001/XMLSchema#"
    literals = [
        *(f'"{text}"^^<{xsd}integer>' for text in ("0", "-7", "007", "144115188075855871", "99999999999999999999")),
        *(f'"{text}"^^<{xsd}{kind}>' for text, kind in (("1.50", "decimal"), ("1.5E-7", "double"), ("2.5", "float"))),
        *(f'"{text}"^^<{xsd}{kind}>' for text, kind in (("true", "boolean"), ("2020-01-01T00:00:00Z", "dateTime"))),
        *('"é"@fr', r'"a \"b\" \n"', f"<{EX}a>", "_:b"),
    ]
    text = "SELECT ?s ?o ?x WHERE { STREAM :obs [RANGE 10s] { ?s :p ?o OPTIONAL { ?s :q ?x } } }"
    with cqels.Engine() as engine, cqels.Engine() as other:
        queries = [each.register(f"PREFIX : <{EX}> {text}", emit="changes") for each in (engine, other)]
        lines = "".join(f"<{EX}s> <{EX}p> {literal} {number // 5} .\n" for number, literal in enumerate(literals))
        for each in (engine, other):
            each.push(OBS, lines.encode())
            each.heartbeat("20s")
        batch, results = queries[0].terms(), queries[1].take()
        assert queries[0].take() == []
        assert batch.schema.names == ["time", "tick", "sign", "empty", "?s", "?o", "?x"]
        assert len(results) == 2 * len(literals)
        assert batch["time"].to_pylist() == [result.nanoseconds for result in results]
        assert batch["tick"].to_pylist() == [result.tick for result in results]
        assert batch["sign"].to_pylist() == [result.sign for result in results]
        assert batch["?o"].to_pylist() == [str(result.values[1]) for result in results]
        assert batch["?x"].null_count == len(results)
        assert queries[0].terms().num_rows == 0


def test_columns_of_what_is_not_selected() -> None:
    pytest.importorskip("pyarrow")
    where = "{ STREAM :obs [RANGE 10s] { ?s :temp ?t } FILTER(?t > 30) }"
    with cqels.Engine() as engine:
        ask, construct, snapshot = (
            engine.register(f"PREFIX : <{EX}> {head} {where}", emit=emit)
            for head, emit in (
                ("ASK", None),
                ("CONSTRUCT { ?s a :Hot ; :is ?t } WHERE", None),
                ("SELECT ?s", "snapshot"),
            )
        )
        engine.push(OBS, [reading("a", 31), reading("a", 5)], ["1s", "20s"])
        assert ask.terms()["answer"].to_pylist() == [True, False]
        assert construct.terms()["triples"].to_pylist() == [
            f"<{EX}a> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{EX}Hot> . "
            f'<{EX}a> <{EX}is> "31"^^<http://www.w3.org/2001/XMLSchema#integer> .'
        ]
        batch = snapshot.terms()
    assert batch["empty"].to_pylist() == [False, True]
    assert batch["?s"].to_pylist() == [f"<{EX}a>", None]
    assert batch["sign"].null_count == 2


# ---------------------------------------------------------------- state


def test_a_snapshot_is_where_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with cqels.Engine() as engine:
        engine.register(ROOMS, name="rooms", emit="changes")
        engine.update(f"PREFIX : <{EX}> INSERT DATA {{ :a :in :kitchen }}")
        engine.push(OBS, reading("a", 1), time="1s")
        data = engine.snapshot(path)
        assert engine.snapshot() == data
    with cqels.Engine() as engine:
        engine.update(f"PREFIX : <{EX}> INSERT DATA {{ :a :in :kitchen }}")
        query = engine.register(ROOMS, name="rooms", emit="changes")
        engine.restore(path)
        assert [result.sign for result in query.take()] == ["+"]
        engine.push(OBS, reading("a", 2), time="2s")
        assert values(query.take()) == [("kitchen", "1"), ("kitchen", "2")]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (HOT, "rooms", "'rooms' is another query"),
        (ROOMS, "other", "'rooms' is not registered; 'other' is not in the snapshot"),
    ],
)
def test_a_snapshot_of_other_queries_is_refused(text: str, name: str, message: str) -> None:
    with cqels.Engine() as engine:
        engine.register(ROOMS, name="rooms")
        data = engine.snapshot()
    with cqels.Engine() as engine:
        engine.register(text, name=name)
        with pytest.raises(cqels.CqelsError, match=message):
            engine.restore(data)
        with pytest.raises(cqels.CqelsError, match="not a snapshot"):
            engine.restore(b"nonsense" * 100)


def test_an_engine_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "arena"
    with cqels.Engine(memory=path, size=1 << 24) as engine:
        query = engine.register(HOT)
        engine.push(OBS, reading("a", 31), time="1s")
        assert values(query.take()) == [("a", "31")]
    assert path.stat().st_size == 1 << 24
    with cqels.Engine(memory=path) as engine:  # what another engine left is not in the way
        assert values(engine.register(HOT).take()) == []
    path.write_text("something else")
    with pytest.raises(cqels.CqelsError, match="not the memory of an engine"):
        cqels.Engine(memory=path)


def test_a_full_engine_says_so() -> None:
    with cqels.Engine(size=1 << 21) as engine:
        engine.register(f"PREFIX : <{EX}> SELECT * WHERE {{ STREAM :obs [ALL] {{ ?s ?p ?o }} }}")
        numbers = range(20_000)
        with pytest.raises(MemoryError, match="the arena is full"):
            engine.push(OBS, [reading(f"a{number}", number) for number in numbers], list(numbers))


def test_terms_that_nothing_refers_to_are_forgotten() -> None:
    with cqels.Engine() as engine:
        query = engine.register(HOT)
        for start in range(0, 5000, 100):
            numbers = range(start, start + 100)
            engine.push(OBS, [reading(f"a{number}", 31) for number in numbers], [number * 10**9 for number in numbers])
        untaken = engine.collect()
        assert untaken == 0  # results that nobody has taken refer to them
        assert len(query.take()) == 5000
        assert engine.collect() > 4500
        engine.push(OBS, reading("b", 35), time=5000 * 10**9)
        assert values(query.take()) == [("b", "35")]


def test_terms_that_only_free_memory_has_are_forgotten() -> None:
    with cqels.Engine() as engine:
        query = engine.register(f"PREFIX : <{EX}> SELECT (COUNT(*) AS ?n) WHERE {{ STREAM :obs [ALL] {{ ?s ?p ?o }} }}")
        for start in range(0, 5000, 100):
            numbers = range(start, start + 100)
            engine.push(OBS, [reading(f"a{number}", 31) for number in numbers], [number * 10**9 for number in numbers])
        query.take()
        assert engine.collect() < 500
        engine.drop(query)
        assert engine.collect() > 4500


@pytest.mark.parametrize(("order", "bytes_of_a_row"), [("", 32), ("LIMIT 1", 64)])
def test_joins_keep_times_where_they_matter(order: str, bytes_of_a_row: int) -> None:
    """Without an order the freshest solution comes first, so its time is kept."""
    pair = "STREAM :obs [RANGE 100s] { ?s :temp ?t } STREAM :more [RANGE 100s] { ?s :temp ?u }"
    with cqels.Engine() as engine:
        query = engine.register(f"PREFIX : <{EX}> SELECT ?s ?t ?u WHERE {{ {pair} }} {order}")
        engine.heartbeat(0)
        words = engine.internals.arena.words
        for trace in query.running.pipeline.joins:
            for source in words[trace.offset + join.INPUT :][: int(words[trace.offset + join.INPUTS])]:
                buffer = int(words[source + join.BUFFER])
                assert words[buffer + row_storage.KIND] == row_storage.RING
                assert 8 * words[buffer + row_storage.STRIDE] == bytes_of_a_row
        engine.push(OBS, reading("a", 31), time="1s")
        engine.push(EX + "more", reading("a", 32), time="2s")
        assert values(query.take()) == [("a", "31", "32")]


def test_what_joins_remember_is_in_use_when_others_are_dropped() -> None:
    both = (
        f"PREFIX : <{EX}> SELECT ?s ?t WHERE {{ "
        "STREAM :obs [RANGE 100s] { ?s :temp ?t } STREAM :more [RANGE 100s] { ?s :temp ?u } }"
    )
    with cqels.Engine() as engine:
        query = engine.register(both)
        for number in range(30):
            engine.push(OBS, reading(f"a{number}", 31), time=f"{number}s")
            engine.drop(engine.register(ROOMS))
            others = [engine.register(ROOMS), engine.register(HOT)]  # in the memory that was given back, if any was
            engine.push(EX + "more", reading(f"a{number // 2}", 32), time=f"{number}s")
            assert values(query.take()) == [(f"a{number // 2}", "31")] * (number % 2 == 0)
            for other in others:
                engine.drop(other)


def test_what_is_dropped_is_given_back_beside_what_joins_remember() -> None:
    """A query may lie just before the rows of a join, which are written anew when there is room for more."""
    pair = "STREAM :%s [RANGE 1000s] { ?s :temp ?t } STREAM :%s [RANGE 2000s] { ?s :temp ?u }"
    with cqels.Engine() as engine:
        engine.register(f"PREFIX : <{EX}> SELECT ?s ?t WHERE {{ {pair % ('obs', 'more')} }}")
        counted = f"PREFIX : <{EX}> SELECT ?s (COUNT(*) AS ?n) WHERE {{ {pair % ('a', 'a')} }} GROUP BY ?s"
        for room in (8, 16, 32, 64, 128):
            for number in range(room // 2 if room > 8 else 0, room):
                engine.push(OBS, reading(f"a{number}", 31), time=f"{number}s")
            before = engine.internals.arena.held
            other = engine.register(counted)
            there = engine.internals.arena.held
            engine.push(OBS, reading("b", room), time=f"{room}s")
            more = engine.internals.arena.held - there
            engine.drop(other)
            assert engine.internals.arena.held <= before + more


def test_terms_of_elements_that_were_worked_off_are_forgotten() -> None:
    with cqels.Engine() as engine:
        query = engine.register(f"PREFIX : <{EX}> SELECT (COUNT(*) AS ?n) WHERE {{ STREAM :obs [NOW] {{ ?s ?p ?o }} }}")
        numbers = range(2000)
        engine.push(OBS, [reading(f"a{number}", 31) for number in numbers], [number * 10**9 for number in numbers])
        query.take()
        assert engine.collect() > 1900


def test_terms_of_elements_that_wait_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqels.engine.term_gc._FEWEST_TERMS", 100)
    with cqels.Engine() as engine:
        engine.stream(OBS, lateness="60s")
        query = engine.register(HOT)
        found = []
        for start in range(0, 1000, 100):
            numbers = range(start, start + 100)
            engine.push(OBS, [reading(f"a{number}", 31) for number in numbers], [number * 10**9 for number in numbers])
            found += values(query.take())
        engine.finish()
        found += values(query.take())
        assert found == [(f"a{number}", "31") for number in range(1000)]


def test_terms_of_elements_that_are_still_to_be_merged_are_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("cqels.engine.term_gc._FEWEST_TERMS", 100)
    monkeypatch.setattr("cqels.ingest.input_files.CHUNK", 1 << 14)
    steps = {"obs": 1, "slow": 7}
    for stream, step in steps.items():
        lines = (timed(f"{stream}{number}", 31, str(number * step)) for number in range(1000))
        (tmp_path / f"{stream}.nt").write_text("\n".join(lines))
    query = prepare(f"SELECT ?s WHERE {{ STREAM ?any [NOW] {{ ?s <{EX}temp> ?t }} }}")
    streams = [declare(EX + stream, tmp_path / f"{stream}.nt") for stream in steps]
    found = values([result for _, result in replay([query], streams, Store())])
    assert sorted(found) == sorted((f"{stream}{number}",) for stream in steps for number in range(1000))


def test_dropped_queries_leave_nothing_behind() -> None:
    text = (
        f"PREFIX : <{EX}> SELECT ?s ?t WHERE {{ STREAM :obs [ALL] {{ ?s :temp ?t . ?s ?p ?u }} }} ORDER BY ?t LIMIT 3"
    )
    with cqels.Engine() as engine:
        stays = engine.register(HOT, emit="changes")
        held = []
        for turn in range(12):
            query = engine.register(text)
            engine.push(OBS, [reading(f"a{turn % 3}", number % 40) for number in range(200)], [turn * 20 * 10**9] * 200)
            query.drop()
            arena = engine.internals.arena
            held.append((arena.held, arena.used, len(list(arena.heaps()))))
        assert held[3:] == held[3:4] * 9
        assert len(stays.take()) == 207


@pytest.mark.fuzz
def test_queries_that_come_and_go_leave_memory_level() -> None:
    """100,000 times: shared, fed and guarded ones, with functions, orders and static data."""
    shapes = (
        "SELECT ?s ?t WHERE { STREAM :obs [RANGE 10s] { ?s :temp ?t } FILTER(?t > %d) }",
        "SELECT ?s (CONCAT(STR(?s), '%d') AS ?u) WHERE { STREAM :obs [RANGE 10s] { ?s :temp ?t } } ORDER BY ?t LIMIT 3",
        "SELECT ?s ?v WHERE { STREAM :obs [ALL] { ?s :temp ?t } STREAM :more [RANGE %ds] { ?s :temp ?v } ?s :in ?r }",
        "SELECT (AVG(?v) AS ?a) WHERE { STREAM :obs [ALL] { ?s :temp ?t } STREAM :more [RANGE %ds] { ?s :temp ?v } }",
    )
    with cqels.Engine() as engine:
        engine.update(f"INSERT DATA {{ <{EX}a> <{EX}in> <{EX}r> }}")
        levels = []
        for turn in range(100_000 // 8):
            queries = [
                engine.register(f"PREFIX : <{EX}> " + text % (number + turn % 5), memory="1MB" if number == 1 else None)
                for text in shapes
                for number in range(2)
            ]
            engine.push(OBS, reading("a", 31 + turn % 9), time=2 * turn)
            engine.push(EX + "more", reading("a", 32), time=2 * turn + 1)
            for query in queries:
                query.drop()
            arena = engine.internals.arena
            levels.append((arena.held, arena.used, len(list(arena.heaps()))))
        assert levels[-1] == levels[len(levels) // 10]


def test_a_plan_with_what_was_done() -> None:
    text = (
        f"PREFIX : <{EX}> SELECT ?s ?t ?u WHERE {{ STREAM :obs [RANGE 10s] {{ ?s :temp ?t }} ?s :in ?room "
        "STREAM :obs [RANGE 5s] { ?s :temp ?u } FILTER(?u > NOW()) }"
    )
    with cqels.Engine() as engine:
        engine.update(f"PREFIX : <{EX}> INSERT DATA {{ :a :in :kitchen }}")
        query = engine.register(text)
        engine.push(OBS, [reading("a", number) for number in range(20)], [number * 10**9 for number in range(20)])
        shown = query.explain()
    assert "window: 11 triples of 20" in shown
    assert "table: indexed on ?s   rows: 1" in shown
    assert "orders: " in shown
    assert "computed anew: an expression that depends on the tick's time" in shown


def test_the_public_interface_is_what_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/python.md").read_text()
    section = page.split("::: cqels.Engine\n")[1].split("\n## ")[0]
    documented = {line.removeprefix("        - ") for line in section.splitlines() if line.startswith("        - ")}
    assert {name for name in vars(cqels.Engine) if not name.startswith("_")} == documented
    with cqels.Engine() as engine:
        assert [name for name in vars(engine) if not name.startswith("_")] == ["internals"]
