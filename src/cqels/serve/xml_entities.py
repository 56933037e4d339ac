"""Entities of XML that grow when they are used: a small body would take all memory."""

from __future__ import annotations

import re

from cqels.model.errors import DataError

_GROWTH, _ALWAYS = 10, 1 << 20
"""How much larger a body may become, and up to how many bytes whatever it was."""
_DECLARATION = re.compile(rb'<!ENTITY\s+(\S+)\s+"([^"]*)"')
_USE = re.compile(rb"&([^#&;<\s][^&;<\s]*);")


def check_entities(body: bytes) -> None:
    """Refuse RDF/XML that would be much larger with what its entities stand for."""
    declared = body.count(b"<!ENTITY")
    if not declared:
        return
    sizes: dict[bytes, int] = {}
    found = total = 0
    for match in _DECLARATION.finditer(body):
        found += 1
        size = _size(match[2], sizes)
        sizes[match[1]] = max(size, sizes.get(match[1], 0))
        total += size
    if found != declared:
        raise DataError("the XML has a declaration of an entity that is not taken", hint='as <!ENTITY name "text">')
    if max(total, _size(body, sizes)) > max(_ALWAYS, _GROWTH * len(body)):
        raise DataError("the XML grows too much by its entities", hint="send it without entities, or as Turtle")


def _size(text: bytes, sizes: dict[bytes, int]) -> int:
    return len(text) + sum(sizes.get(use[1], 0) for use in _USE.finditer(text))
