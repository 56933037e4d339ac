"""Why a piece of input cannot be read, as one lowercase sentence."""

from __future__ import annotations

import re

from pyoxigraph import BlankNode, NamedNode, Quad
from pyoxigraph import Triple as TripleTerm

from cqels.model.terms import Triple

_POSITION = re.compile(r"^Parser error (?:at|between) .*?(?:columns? \d+(?: and \d+)?|line \d+ column \d+): ")
_NOT_UTF8 = re.compile("[\ud800-\udfff]")


def reason_of(error: Exception, text: str = "") -> str:
    """The parser's message without the position, which counts in a part of the file only."""
    if _NOT_UTF8.search(text):
        return "the text is not UTF-8"
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    message = _POSITION.sub("", message)
    return message[:1].lower() + message[1:]


def triple_of(quad: Quad) -> Triple:
    """The quad's triple, if it is one of RDF 1.1."""
    subject, object_ = quad.subject, quad.object
    if isinstance(object_, TripleTerm) or not isinstance(subject, NamedNode | BlankNode):
        raise ValueError("a triple inside a triple is not part of RDF 1.1")
    return subject, quad.predicate, object_
