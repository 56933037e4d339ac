"""From two results of a query, the one before and the one now, to what is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from cqels.model.terms import Term, text_of

Row: TypeAlias = tuple[Term | None, ...]


def differences(
    emit: str, before: list[Row], now: list[Row], *, changed: bool, ordered: bool
) -> list[tuple[str, Row]] | None:
    """The rows sent, with their signs. None is an empty snapshot, which is sent as such."""
    appeared = _by_text((Counter(now) - Counter(before)).elements())
    vanished = _by_text((Counter(before) - Counter(now)).elements())
    match emit:
        case "istream":
            return [("+", row) for row in appeared]
        case "dstream":
            return [("-", row) for row in vanished]
        case "changes":
            return [("-", row) for row in vanished] + [("+", row) for row in appeared]
        case "rstream":
            return [("+", row) for row in (now if ordered else _by_text(now))] if changed else []
        case "snapshot":
            shown, last = (now, before) if ordered else (_by_text(now), _by_text(before))
            if shown == last:
                return []
            return [("+", row) for row in shown] or None
        case other:
            raise AssertionError(f"no emission {other}")


def without_expiry(
    emit: str,
    signed: list[tuple[str, Row]] | None,
    before: list[Row],
    now: list[Row],
    unmoved: list[Row],
    *,
    ordered: bool,
) -> list[tuple[str, Row]] | None:
    """What remains to be sent where expiry alone sends nothing; `unmoved` is the result had nothing arrived."""
    match emit:
        case "rstream":
            return signed
        case "snapshot":
            same = unmoved == now if ordered else Counter(unmoved) == Counter(now)
            return [] if same else signed
    expired = {"+": Counter(unmoved) - Counter(before), "-": Counter(before) - Counter(unmoved)}
    kept: list[tuple[str, Row]] = []
    for sign, row in signed or []:
        if expired[sign][row] > 0:
            expired[sign][row] -= 1
        else:
            kept.append((sign, row))
    return kept


def _by_text(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(map(text_of, row)))
