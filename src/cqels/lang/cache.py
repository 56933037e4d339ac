"""The tables of the parser, kept between runs as JSON, so that a command answers at once."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import lark
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

from cqels.model.folders import cache_part


def parser_of(grammar: str, **options: Any) -> Lark:
    """The parser of a grammar: read from the user's cache folder, or made, and kept there."""
    path = grammar_cache(f"{grammar}{options}")
    known = None if path is None else _read(path)
    if known is not None:
        return known
    made = Lark(grammar, **options)
    if path is not None:
        _write(path, made)
    return made


def grammar_cache(grammar: str) -> Path | None:
    """The file of a grammar, named by its content; None where there is no cache."""
    folder = cache_part("grammar")
    stamp = hashlib.sha256((grammar + lark.__version__).encode()).hexdigest()[:16]
    return None if folder is None else folder / f"{stamp}.json"


def _read(path: Path) -> Lark | None:
    try:
        found = json.loads(path.read_bytes(), object_hook=_keyed)
        load: Any = Lark._load_from_dict  # as lark's own stand-alone parsers do
        parser: Lark = load(found["data"], found["memo"])
    except Exception:  # none was kept, or it is damaged: whatever is wrong with it, it is made again
        return None
    return parser


def _keyed(table: dict[str, Any]) -> dict[Any, Any]:
    """The keys of lark's tables are numbers, which JSON has as text."""
    return {int(key) if key.isdigit() else key: value for key, value in table.items()}


def _write(path: Path, parser: Lark) -> None:
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump({"data": data, "memo": memo}, file)
        os.replace(file.name, path)
    except OSError:
        return  # a full disk costs time, not results
