"""Mutated queries: each is refused with its place, or runs, explains itself, is saved and dropped."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import cqels
from cqels.model.errors import CqelsError, QueryStopped
from cqels.plan.binder import EMISSIONS
from cqels.reference.reference_engine import Reference, TooManyBoundaries
from cqels.store.dataset import Store
from cqels.store.service_answers import KnownAnswers

from ..cases import DIRECTORY, Register, read_case
from ..cases import shown as rows_of
from ..incremental import Incremental
from ..suites.w3c import SUITE
from ..test_cases import play
from .harness import Kind, interrupted, shown

ROOT = Path(__file__).parents[2]
EX = "http://ex.org/"
TOKEN = re.compile(r"""\s+|<[^<>\s]*>|"[^"\n]*"|'[^'\n]*'|[?$]\w+|[\w:.+-]*\w|&&|\|\||\^\^|!=|<=|>=|.""", re.DOTALL)
NASTY = [
    *("", "0", "-1", "1e400", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 5000),
    *("1ns", "0s", "9223372036854775807ns", "292y", "1000000d", "0.5s"),
    *("?x", "?nowhere", "$s", "*", "(", ")", "{", "}", "[", "]", "[]", ".", ";", ",", "|", "/", "^", "!", "+", "?"),
    *(
        "a",
        "_:b",
        ":",
        "<>",
        "<x>",
        "<http://[>",
        '""',
        "'''",
        '"\\u0000"',
        '"\\uD800"',
        "'\\x'",
        "@",
        "^^",
        "\0",
        "\ufffe",
    ),
    *("(" * 500, "{" * 500, "!" * 2000, "-" * 2000, "( ?x + " * 300, ":p/" * 1000 + ":p", "{ } UNION " * 300),
    *(
        "SELECT *",
        "SELECT DISTINCT",
        "CONSTRUCT WHERE",
        "ASK",
        "DESCRIBE ?s",
        "REGISTER STREAM :out AS",
        "REGISTER QUERY q AS",
    ),
    *(
        "OPTIONAL {",
        "UNION",
        "MINUS {",
        "FILTER",
        "EXISTS {",
        "NOT EXISTS {",
        "BIND(1 AS ?v)",
        "VALUES ?s { UNDEF :a }",
    ),
    *("GRAPH ?g {", "GRAPH :g {", "SERVICE <http://ex.org/e> {", "SERVICE SILENT ?e {", "FROM :g", "FROM NAMED :g"),
    *(
        "STREAM :s [NOW] {",
        "STREAM ?s [RANGE 1s] {",
        "WINDOW :w {",
        "[RANGE 5s SLIDE 1s]",
        "[TRIPLES 3]",
        "[ELEMENTS 2]",
    ),
    *(
        "[RANGE 5s TUMBLING]",
        "[ALL]",
        "[RANGE 1ns SLIDE 1ns]",
        "[PARTITION BY ?s TRIPLES 2]",
        "SEQ",
        "FROM NAMED WINDOW :w ON :s [RANGE PT5S]",
    ),
    *("GROUP BY ?s", "HAVING(COUNT(*) > 1)", "ORDER BY DESC(?s)", "LIMIT 0", "LIMIT 3", "OFFSET 1", "(COUNT(*) AS ?c)"),
    *(
        "SUM(?o)",
        "AVG(DISTINCT ?o)",
        'GROUP_CONCAT(?o; SEPARATOR="")',
        "SAMPLE(?s)",
        "COUNT(DISTINCT *)",
        "IF(?a, 1/0, ?b)",
    ),
    *(
        'REGEX(STR(?o), "(a+)+$")',
        'REPLACE("a", "", "b")',
        'REPLACE("abc", "(b)", "$9")',
        "SUBSTR(?o, -1, 99)",
        "BNODE(?o)",
        "IRI(?o)",
    ),
    *(
        "xsd:dateTime(?o)",
        "NOW()",
        "RAND()",
        "UUID()",
        'STRDT("x", ?o)',
        "<< ?s ?p ?o >>",
        "TZ(?o)",
        "(:p|^:q)*",
        "!(:p|^:q)",
    ),
]
EMITS = [None, None, *EMISSIONS]
POLICIES = [None, None, "cqels", "window-close", "cqels-1"]


@dataclass(frozen=True)
class Written:
    """A query's text and how it is registered."""

    text: str
    options: dict[str, Any]


@cache
def corpus() -> list[Written]:
    """The queries of the cases, the examples, the scenarios and, where it is, the W3C's suite."""
    found = []
    for path in sorted(DIRECTORY.glob("**/*.cqt")):
        for asked in read_case(path).queries:
            options = {"emit": asked.emit, "policy": asked.policy, "dialect": asked.dialect, "lenient": asked.lenient}
            found.append(Written(asked.names.prologue + asked.text, options))
    for folder in (ROOT / "examples", ROOT / "src" / "cqels" / "scenarios", SUITE):
        texts = (path.read_bytes().decode(errors="replace") for path in sorted(folder.glob("**/*.rq")))
        found += [Written(text, {}) for text in texts]
    return found


# ---------------------------------------------------------------- mutations


def draw(random: Random) -> bytes:
    written = random.choice(corpus())
    tokens = TOKEN.findall(written.text)
    for _ in range(random.choice([0, 1, 1, 1, 2, 2, 3, 5])):
        tokens = _mutated(tokens, random)
    text = "".join(tokens)
    if random.random() < 0.1:
        place = random.randrange(len(text) + 1)
        text = (
            text[:place]
            + chr(random.choice([0, 9, 127, 133, 0x2028, 0xFEFF, 0x10FFFF, random.randrange(256)]))
            + text[place + 1 :]
        )
    options = dict(written.options)
    if random.random() < 0.3:
        options |= {"emit": random.choice(EMITS), "policy": random.choice(POLICIES)}
    return json.dumps({"text": text, "options": options}, indent=1).encode()


def _mutated(tokens: list[str], random: Random) -> list[str]:
    """The tokens, some of them left out, doubled, exchanged or replaced, or with some of another query between them."""
    start = random.randrange(len(tokens) + 1)
    end = min(len(tokens), start + random.choice([0, 1, 1, 2, 5, 20]))
    match random.choice(
        ["remove", "double", "move", "nasty", "nasty", "nasty", "splice", "splice", "number", "variable"]
    ):
        case "remove":
            return tokens[:start] + tokens[max(end, start + 1) :]
        case "double":
            return tokens[:end] + tokens[start:]
        case "move":
            taken, left = tokens[start:end], tokens[:start] + tokens[end:]
            place = random.randrange(len(left) + 1)
            return left[:place] + taken + left[place:]
        case "nasty":
            return [*tokens[:start], " ", random.choice(NASTY), " ", *tokens[random.choice([start, start + 1]) :]]
        case "splice":
            other = TOKEN.findall(random.choice(corpus()).text)
            first = random.randrange(len(other) + 1)
            return tokens[:start] + other[first : first + random.choice([1, 3, 10, 40])] + tokens[end:]
        case "number":
            places = [place for place, token in enumerate(tokens) if token[:1].isdigit()]
            return _at(tokens, places, random, lambda token: random.choice(NASTY[:14]))
        case _:
            places = [place for place, token in enumerate(tokens) if token[:1] == "?" and len(token) > 1]
            return _at(tokens, places, random, lambda token: tokens[random.choice(places)])


def _at(tokens: list[str], places: list[int], random: Random, change: Any) -> list[str]:
    if not places:
        return tokens
    place = random.choice(places)
    return [*tokens[:place], change(tokens[place]), *tokens[place + 1 :]]


# ---------------------------------------------------------------- a small life


def check(case: bytes) -> None:
    content = json.loads(case)
    store = Store()
    store.services = KnownAnswers(dict)
    names = iris(content["text"])
    with cqels.Engine(store=store, size=1 << 26, stopped=lambda query: None) as engine:
        engine.update(
            f"INSERT DATA {{ {' '.join(triples(names, Random(0), 4))} GRAPH <{EX}g> {{ <{EX}a> <{EX}p> 1 }} }}"
        )
        engine.stream(EX + "s")
        try:
            query = engine.register(content["text"], time="50ms", memory="200MB", **content["options"])
        except CqelsError as error:
            shown(error, placed=True)
            return
        live(engine, query, names)
        assert not engine.queries


def live(engine: cqels.Engine, query: cqels.StandingQuery, names: list[str]) -> None:
    random = Random(1)
    for number in range(8):
        for stream in engine.streams[:4]:
            if stream != query.name:
                engine.push(stream, " ".join(triples(names, random, 2)), time=f"{number * 700}ms")
    engine.update(f"DELETE DATA {{ GRAPH <{EX}g> {{ <{EX}a> <{EX}p> 1 }} }}")
    query.explain()
    try:
        for result in query.take():
            repr(result).encode()
    except QueryStopped:
        pass
    engine.snapshot()
    engine.heartbeat("8s")
    query.drop()


def iris(text: str) -> list[str]:
    """The IRIs of a text, so that what is pushed can match."""
    prefixes = dict(re.findall(r"PREFIX\s+(\w*):\s*<([^<>\s]*)>", text, re.IGNORECASE))
    names = [prefixes[prefix] + local for prefix, local in re.findall(r"\b(\w*):(\w+)", text) if prefix in prefixes]
    names += [prefixes[""] + local for local in re.findall(r"(?<![\w>]):(\w+)", text) if "" in prefixes]
    whole = [name for name in names if re.fullmatch(r"[a-z]+:[\w/#.-]+", name)]
    return sorted({*whole, EX + "p"})[:30]


def triples(names: list[str], random: Random, count: int) -> list[str]:
    values = ["1", "2.5", '"text"@en', f"<{EX}a>", f"<{EX}b>", "true", "_:b", '"2026-01-01T00:00:00Z"']
    subjects = [f"<{EX}a>", f"<{EX}b>"]
    return [f"{random.choice(subjects)} <{random.choice(names)}> {random.choice(values)} ." for _ in range(count)]


QUERIES = Kind("queries", draw, check)


# ---------------------------------------------------------------- against the reference


UNREPEATABLE = re.compile(r"\b(NOW|RAND|UUID|STRUUID|SERVICE)\b", re.IGNORECASE)
PATIENCE = 4.0
"""Seconds that an engine has: the reference works off every boundary of a window, though nothing is in it."""


@cache
def cases() -> list[Path]:
    """Those with streams."""
    return [path for path in sorted(DIRECTORY.glob("**/*.cqt")) if read_case(path).streams]


def draw_mutant(random: Random) -> bytes:
    path = random.choice(cases())
    texts = []
    for asked in read_case(path).queries:
        tokens = TOKEN.findall(asked.text)
        for _ in range(random.choice([1, 1, 2])):
            tokens = _exchanged(tokens, random)
        texts.append("".join(tokens))
    return json.dumps({"path": str(path.relative_to(DIRECTORY)), "texts": texts}, indent=1).encode()


ALIKE = [
    *(["SUM", "AVG", "MIN", "MAX", "COUNT"], ["OPTIONAL", "MINUS", ""], ["ASC", "DESC"]),
    *(["RANGE", "ELEMENTS", "TRIPLES"], ["<", ">", "<=", ">=", "=", "!="], ["+", "-", "*", "/"], ["&&", "||"]),
    *(["SELECT", "SELECT DISTINCT"], ["1s", "2s", "3s", "5s", "10s", "500ms"], ["1", "2", "3", "10", "0"]),
    *(["EXISTS", "NOT EXISTS"], ["UNION", "", "MINUS"]),
]


def _exchanged(tokens: list[str], random: Random) -> list[str]:
    """The tokens, one of which is another that may stand there, so that most such queries are taken."""
    place = random.randrange(len(tokens))
    kinds = [alike for alike in ALIKE if tokens[place].upper() in alike]
    if kinds:
        other = random.choice(kinds[0])
    elif tokens[place][:1] in "?:" and len(tokens[place]) > 1:
        other = random.choice([token for token in tokens if token[:1] == tokens[place][:1] and len(token) > 1])
    elif random.random() < 0.8:
        return _exchanged(tokens, random)
    else:
        return _mutated(tokens, random)
    return [*tokens[:place], other, *tokens[place + 1 :]]


def check_mutant(case: bytes) -> None:
    """With the queries of a case changed, both engines send the same, and refuse the same with the same words."""
    content = json.loads(case)
    if UNREPEATABLE.search(" ".join(content["texts"])):
        return
    found: list[dict[str, list[str]]] = []
    for engine in (Incremental, Reference):
        try:
            if interrupted(lambda engine=engine: found.append(outcome(content, engine)), PATIENCE):  # type: ignore[misc]
                return
        except (MemoryError, TooManyBoundaries):  # a window that slides by a nanosecond has billions of results
            return
    assert found[0] == found[1]


def outcome(content: dict[str, Any], engine: Any) -> dict[str, list[str]]:
    """What is shown of a case whose queries have these texts."""
    case = read_case(DIRECTORY / content["path"])
    pairs = zip(case.queries, content["texts"], strict=True)
    asked = {old.label: replace(old, text=text) for old, text in pairs}
    events = tuple(Register(asked[each.asked.label]) if isinstance(each, Register) else each for each in case.events)
    changed = replace(case, queries=tuple(asked.values()), events=events)
    return rows_of(changed, play(changed, engine))


MUTANTS = Kind("mutants", draw_mutant, check_mutant)
