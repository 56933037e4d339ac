"""From text to plan in one call, with every error at its place in the text."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from cqels.lang.parser import parse
from cqels.model.errors import CqelsError, QueryError, Source
from cqels.plan.algebra import Query, QueryText
from cqels.plan.binder import bind


def prepare(
    text: str,
    *,
    source: str = "<query>",
    name: str | None = None,
    dialect: str | None = None,
    emit: str | None = None,
    policy: str | None = None,
    base: str | None = None,
    lenient: bool = False,
) -> Query:
    """The plan of a query's text, as written. `source` is what the text is called in errors.

    A variable that is selected, ordered or grouped by and bound nowhere is an error, or else a warning if `lenient`.
    """
    try:
        parsed = parse(text, name=source, base=base, dialect=dialect)
        query = bind(parsed, name=name, emit=emit, policy=policy, lenient=lenient)
        for warning in query.warnings:
            warning.locate(Source(text, source))
        return replace(query, text=QueryText(text, base, dialect, emit, policy, lenient))
    except CqelsError as error:
        error.locate(Source(text, source))
        raise


def planned(query: object, **options: Any) -> tuple[Query, Source | None]:
    """The plan of a text or of a file's text, and where its errors are."""
    if isinstance(query, Query):
        return query, None
    if not isinstance(query, str | os.PathLike):
        raise QueryError(
            f"a query of type {type(query).__name__} is not taken", hint="give its text, or the path of a file with it"
        )
    text, place = os.fspath(query), "<query>"
    if not isinstance(query, str) or (text.endswith(".rq") and "\n" not in text and "{" not in text):
        text, place = read_query(Path(text)), text
    return prepare(text, source=place, **options), Source(text, place)


def read_query(path: Path) -> str:
    """The text of a query file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise QueryError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise QueryError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def is_same(known: QueryText | None, query: Query) -> bool:
    """Whether a kept text is that of a query, as this release plans it: an earlier one may have planned otherwise."""
    if known is None:
        return False
    from cqels.plan.plan_json import fingerprint  # which needs what commands that only read queries do not

    options: dict[str, Any] = {"dialect": known.dialect, "emit": known.emit, "policy": known.policy, "base": known.base}
    try:
        return fingerprint(prepare(known.text, **options, lenient=known.lenient)) == fingerprint(query)
    except CqelsError:
        return False
