"""What is wrong with a piece of input, as one lowercase sentence; and the parsers of others, kept from ending a run."""

from __future__ import annotations

import re

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
"""Triples inside of triples. The parser's stack ends at some 10,000, and the process with it."""
_OUTSIDE_STRINGS = re.compile(
    rb'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|$)'
    rb"|'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|$)"
    rb'|"(?:[^"\\\n]|\\.)*+(?:"|$)'
    rb"|'(?:[^'\\\n]|\\.)*+(?:'|$)"
    rb"|#[^\n]*+|<(?!<)[^<>\s]*+>|(<<|>>)",
    re.DOTALL,
)


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
    return message[:1].lower() + message[1:]


def is_not_utf8(text: str) -> bool:
    """Whether a text has half characters: bytes that were not UTF-8, or an escape that stands for none."""
    return not text.isascii() and _NOT_UTF8.search(text) is not None


def parsed(content: bytes | str, format: RdfFormat, base_iri: str | None = None) -> list[Quad]:
    """The quads of a document. What is wrong with it is one of UNREADABLE."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    check_nesting(data)
    return list(parse(data, format, base_iri=base_iri))


def check_nesting(data: bytes) -> None:
    """Refuse a document with so many triples inside of triples that the parser would end the process."""
    if data.count(NESTED) <= DEEPEST:
        return
    depth = 0
    for match in _OUTSIDE_STRINGS.finditer(data):
        if match[1] is not None:
            depth = depth + 1 if match[1] == NESTED else max(0, depth - 1)
            if depth > DEEPEST:
                raise ValueError(_NO_TRIPLE)


def triple_of(quad: Quad) -> Triple:
    """The quad's triple, if it is one of RDF 1.1."""
    subject, object_ = quad.subject, quad.object
    if isinstance(object_, TripleTerm) or not isinstance(subject, NamedNode | BlankNode):
        raise ValueError(_NO_TRIPLE)
    return subject, quad.predicate, object_
