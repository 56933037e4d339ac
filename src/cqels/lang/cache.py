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

SHIPPED = Path(__file__).with_name("tables")
"""The folder of the tables that were made when the package was built or installed."""


def parser_of(grammar: str, **options: Any) -> Lark:
    """The parser of a grammar: read from the package or the user's cache folder, or made, and kept there."""
    name = _file_name(f"{grammar}{options}")
    path = _grammar_cache(name)
    known = _read(SHIPPED / name) or (None if path is None else _read(path))
    if known is not None:
        return known
    made = Lark(grammar, **options)
    if path is not None:
        _write(path, made)
    return made


def ship(grammar: str, folder: Path = SHIPPED, **options: Any) -> None:
    """Write the tables of a grammar into the package; those of other grammars go."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _file_name(f"{grammar}{options}")
    for other in {*folder.glob("*.json")} - {path}:
        other.unlink()
    if not path.exists():
        _write(path, Lark(grammar, **options))
        path.chmod(0o644)


def _file_name(grammar: str) -> str:
    """What the tables of a grammar are called, by its content."""
    return hashlib.sha256((grammar + lark.__version__).encode()).hexdigest()[:16] + ".json"


def _grammar_cache(name: str) -> Path | None:
    """The file of the user's cache folder; None where there is none."""
    folder = cache_part("grammar")
    return None if folder is None else folder / name


def _read(path: Path) -> Lark | None:
    try:
        return _loaded(path.read_bytes())
    except Exception:  # none was kept, or it is damaged: whatever is wrong with it, it is made again
        return None


def _loaded(content: bytes) -> Lark:
    found = json.loads(content)
    tables = found["data"]["parser"]["parser"]
    tables["tokens"] = _numbered(tables["tokens"])
    tables["states"] = {int(state): _numbered(actions) for state, actions in tables["states"].items()}
    load: Any = Lark._load_from_dict  # as lark's own stand-alone parsers do
    parser: Lark = load(found["data"], _numbered(found["memo"]))
    return parser


def _numbered(table: dict[str, Any]) -> dict[int, Any]:
    """A table of lark, whose keys are numbers; JSON has them as text."""
    return {int(key): value for key, value in table.items()}


def _write(path: Path, parser: Lark) -> None:
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(json.dumps({"data": data, "memo": memo}))  # which is ten times as fast as `dump`
        os.replace(file.name, path)
    except OSError:
        return  # a full disk costs time, not results
