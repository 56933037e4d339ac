"""From the text of a query or an update to its syntax tree; errors of syntax are made readable here."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from lark import Lark, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from cqels.lang import syntax
from cqels.lang.build import Builder
from cqels.lang.build_updates import UpdateBuilder
from cqels.lang.cache import SHIPPED, parser_of, ship
from cqels.lang.dialects import detect
from cqels.lang.names import CLASSES
from cqels.lang.nesting import check_nesting
from cqels.model.errors import CqelsError, QueryError, Source, Span
from cqels.model.gc_pause import without_collection

MAX_LENGTH = 500_000
"""Characters in one query. A longer text is a mistake (a data file, a loop that built it), and is told so at once."""

_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})")


def parse(text: str, *, name: str = "<query>", base: str | None = None, dialect: str | None = None) -> syntax.Query:
    """The syntax tree of a query. `dialect` insists on one; otherwise the query's own words tell which it is."""
    source = Source(text, name)
    try:
        tree, source = _tree(source, "query")
        builder = Builder(base)
        return detect(builder.query(tree), builder.used, dialect)
    except CqelsError as error:
        error.locate(source)
        raise


def parse_update(text: str, *, name: str = "<update>", base: str | None = None) -> syntax.Update:
    """The syntax tree of a SPARQL update."""
    source = Source(text, name)
    try:
        tree, source = _tree(source, "update")
        return UpdateBuilder(base).update(tree)
    except CqelsError as error:
        error.locate(source)
        raise


_OPTIONS = {
    "parser": "lalr",
    "start": ["query", "update"],
    "propagate_positions": True,
    "maybe_placeholders": True,
}


@cache
def _lark() -> Lark:
    with without_collection():
        return parser_of(_grammar(), **_OPTIONS)


def ship_tables(folder: Path | None = None) -> None:
    """Write the parser's tables into the package, when it is built or installed."""
    ship(_grammar(), folder or SHIPPED, **_OPTIONS)


def _grammar() -> str:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    for name, characters in CLASSES.items():
        grammar = grammar.replace(name, characters)
    return grammar


def _tree(source: Source, start: str) -> tuple[Tree, Source]:  # type: ignore[type-arg]
    if len(source.text) > MAX_LENGTH:
        raise QueryError(
            f"the text is {len(source.text):,} characters long, more than the {MAX_LENGTH:,} a query may have",
            span=Span(0, 1),
            hint="load large tables as static data instead of writing them into the query",
        )
    source = Source(_unescaped(source.text), source.name)
    try:
        tree = _lark().parse(source.text, start=start)
    except UnexpectedInput as error:
        raise _syntax_error(error, source) from None
    check_nesting(tree)
    return tree, source


def _unescaped(text: str) -> str:
    """Code point escapes may stand anywhere in a query (SPARQL 1.1 §19.2), so they are replaced before it is read."""

    def character(found: re.Match[str]) -> str:
        code = int(found[1] or found[2], 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise QueryError(f"{found[0]} is not a Unicode character", span=Span(*found.span()))
        return chr(code)

    return _ESCAPE.sub(character, text) if "\\u" in text or "\\U" in text else text


# ---------------------------------------------------------------- readable syntax errors

_WORDS = {
    "LBRACE": "{",
    "RBRACE": "}",
    "LPAR": "(",
    "RPAR": ")",
    "LSQB": "[",
    "RSQB": "]",
    "DOT": ".",
    "COMMA": ",",
    "SEMICOLON": ";",
    "VAR1": "a variable",
    "VAR2": "a variable",
    "IRIREF": "an IRI",
    "PNAME_LN": "an IRI",
    "PNAME_NS": "an IRI",
    "INTEGER": "a number",
    "STRING1": "a string",
    "STRING2": "a string",
    "DURATION": "a duration such as 10s",
    "NAME": "a name",
    "COUNTER": "TRIPLES or ELEMENTS",
    "_COUNT": "COUNT",
    "SLIDER": "SLIDE or STEP",
    "STREAMER": "ISTREAM, DSTREAM or RSTREAM",
    "DESCRIBE": "DESCRIBE",
    "STAR": "*",
}


def _syntax_error(error: UnexpectedInput, source: Source) -> QueryError:
    offset = len(source.text) if error.pos_in_stream is None else error.pos_in_stream
    expected: set[str] = set()
    match error:
        case UnexpectedToken(token=token) if token.type == "$END":
            offset, found, width = len(source.text.rstrip()), "the end of the text", 1
            expected = set(error.accepts or error.expected)
        case UnexpectedToken(token=token):
            offset, found, width = token.start_pos or 0, repr(str(token)), len(token)
            expected = set(error.accepts or error.expected)
        case UnexpectedCharacters():
            word = re.match(r"[A-Za-z_]\w*|.", source.text[offset:], re.DOTALL)
            found, width = repr(word[0] if word else ""), len(word[0]) if word else 1
            expected = set(error.allowed or ())
        case UnexpectedEOF():
            found, width = "the end of the text", 1
        case _:
            found, width = "this", 1
    return QueryError(f"{found} is not expected here", span=Span(offset, offset + width), hint=_expectation(expected))


def _expectation(expected: set[str]) -> str | None:
    words = sorted({_WORDS.get(name, name if name.isalpha() and name.isupper() else "") for name in expected} - {""})
    if not words:
        return None
    shown = ", ".join(words[:8]) + (", …" if len(words) > 8 else "")
    return f"possible here: {shown}"
