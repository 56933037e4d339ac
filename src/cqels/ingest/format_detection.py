"""What a file holds, told by how it begins: for files whose names do not say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias

from cqels.ingest.input_files import MARK, open_bytes, reading
from cqels.ingest.timed_lines import lines_hold

SIZE = 1 << 16
"""Bytes that are looked at."""
Content: TypeAlias = Literal["timed", "nquads", "turtle", "trig", "jsonld", "json", "rdfxml", "parquet"]

_DIRECTIVE = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:@prefix|@base|prefix|base)\b", re.IGNORECASE)
_TERM = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:<[^<>\s]*>|_:\w|\[|\(|[\w.-]*:)")
_GRAPH = re.compile(r"(?:^|[\s.>}])(?:GRAPH\s+)?(?:<[^<>\s]*>|[\w.-]*:[\w.-]*|_:\w+)?\s*\{", re.IGNORECASE)
_KEYWORD = re.compile(r'"@(?:id|context|graph|type|value)"')


def beginning(path: Path) -> bytes:
    """The first bytes of a file, decompressed."""
    with open_bytes(path) as file, reading(path):
        return file.read(SIZE).removeprefix(MARK)


def kind_of(data: bytes) -> Content | None:
    """What the first bytes of a file say that it is, None if they say nothing."""
    if data.startswith(b"PAR1"):
        return "parquet"
    text = data.decode("utf-8", "replace")
    match text.lstrip()[:1]:
        case "{" | "[" if re.match(r'\s*(?:\{\s*["}]|\[\s*\{)', text):
            return "jsonld" if _KEYWORD.search(text) else "json"
        case "<" if re.match(r"\s*<(?:\?xml|!DOCTYPE|!--|(?:[\w.-]+:)?RDF\s)", text):
            return "rdfxml"
    if _DIRECTIVE.match(text):
        return "trig" if _GRAPH.search(text) else "turtle"
    if (lines := lines_hold(text)) is not None:
        return lines
    if _TERM.match(text):
        return "trig" if _GRAPH.search(text) else "turtle"
    return None
