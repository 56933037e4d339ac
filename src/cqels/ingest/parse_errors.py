"""What is wrong with a piece of input, as one lowercase sentence; and the parsers of others, kept from ending a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

from pyoxigraph import BlankNode, NamedNode, Quad, RdfFormat, parse
from pyoxigraph import Triple as TripleTerm

from cqels.model.errors import DataError
from cqels.model.terms import Triple

UNREADABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError)
"""What a parser may raise at malformed input, libraries' errors among them. What is raised costs one element."""

_POSITION = re.compile(r"^Parser error (?:at|between) .*?(?:columns? \d+(?: and \d+)?|line \d+ column \d+): ")
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_NO_TRIPLE = "a triple inside a triple is not part of RDF 1.1"
NESTED = b"<<"
"""What a triple inside a triple begins with."""
DEEPEST = 1000
"""Triples inside of triples, and brackets inside of brackets. The parser's stack ends at some 10,000 of the first and
4,000 of the second, and the process with it."""
_LONG = "a term or a statement has more than 16 MB"
_OUTSIDE_STRINGS = re.compile(
    rb'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|$)'
    rb"|'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|$)"
    rb'|"(?:[^"\\\n]|\\.)*+(?:"|$)'
    rb"|'(?:[^'\\\n]|\\.)*+(?:'|$)"
    rb"|#[^\n]*+|<(?!<)[^<>\s]*+>|(<<|>>)",
    re.DOTALL,
)
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|$)|([\[{])|([\]}])', re.DOTALL)


class UnreadableFile(DataError):
    """A file whose content gives no element, or no more: it is rejected, and other files are read on."""

    @property
    def reason(self) -> str:
        """The sentence, and what would help."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


def reason_of(error: Exception, text: str = "") -> str:
    """The parser's message without the position, which counts in a part of the file only."""
    if is_not_utf8(text):
        return "the text is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    message = _POSITION.sub("", message)
    for theirs, ours in _WORDED:
        if theirs in message:
            return ours
    return message[:1].lower() + message[1:]


_WORDED = (
    ("set_int_max_str_digits", "a number has too many digits"),
    ("LoadDocumentCallback", "remote contexts are not fetched: write the @context into the document"),
)
"""What says how a library is programmed, and what it means for those who write data."""


def is_not_utf8(text: str) -> bool:
    """Whether a text has half characters: bytes that were not UTF-8, or an escape that stands for none."""
    return not text.isascii() and _NOT_UTF8.search(text) is not None


def parsed(content: bytes | str, format: RdfFormat, base_iri: str | None = None) -> list[Quad]:
    """The quads of a document. What is wrong with it is one of UNREADABLE."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    check_nesting(data, format)
    return list(quads_of(data, format, base_iri))


def quads_of(
    data: bytes | IO[bytes], format: RdfFormat, base_iri: str | None = None, *, rename: bool = False
) -> Iterator[Quad]:
    """What the parser reads. It ends with a MemoryError where a token or statement is too long for its buffer."""
    try:
        yield from parse(data, format, base_iri=base_iri, rename_blank_nodes=rename)
    except MemoryError:
        raise ValueError(_LONG) from None


def check_nesting(data: bytes, format: RdfFormat) -> None:
    """Refuse a document that is nested so deeply that the parser would end the process."""
    if format == RdfFormat.JSON_LD:
        _check_brackets(data)
        return
    if data.count(NESTED) <= DEEPEST:
        return
    depth = 0
    for match in _OUTSIDE_STRINGS.finditer(data):
        if match[1] is not None:
            depth = depth + 1 if match[1] == NESTED else max(0, depth - 1)
            if depth > DEEPEST:
                raise ValueError(_NO_TRIPLE)


def _check_brackets(data: bytes) -> None:
    if data.count(b"{") + data.count(b"[") <= DEEPEST:
        return
    depth = 0
    for match in _BRACKETS.finditer(data):
        depth += (match[1] is not None) - (match[2] is not None)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")


def triple_of(quad: Quad) -> Triple:
    """The quad's triple, if it is one of RDF 1.1."""
    subject, object_ = quad.subject, quad.object
    if isinstance(object_, TripleTerm) or not isinstance(subject, NamedNode | BlankNode):
        raise ValueError(_NO_TRIPLE)
    return subject, quad.predicate, object_
