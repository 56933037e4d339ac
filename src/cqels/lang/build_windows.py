"""The part of the builder that reads windows and durations."""

from __future__ import annotations

import re
from typing import cast

from lark import Token

from cqels.lang import syntax
from cqels.lang.build_terms import TermBuilder
from cqels.lang.trees import Branch, counted, span_of, trees
from cqels.model.errors import QueryError
from cqels.model.limits import MOST_COUNTED
from cqels.model.time import parse_iso_duration, unit_nanoseconds

MILLISECOND = 1_000_000
_LONGEST_DURATION = 100
"""Characters of a duration such as `10s`: with more digits it has more than 64 bits, or is too fine."""


class WindowBuilder(TermBuilder):
    """Reads `[RANGE …]` and its kin in every dialect."""

    def window(self, tree: Branch, *, bare: bool = False) -> syntax.Window:
        """`bare`: a number without a unit is a count of milliseconds (RSP-QL)."""
        if tree.data.startswith("streaming_"):
            return self._streaming_window(tree)
        (body,) = trees(tree)
        parts = trees(body)
        match body.data:
            case "now_window":
                return syntax.Now()
            case "all_window":
                return syntax.All()
            case "now_range":
                self.used.add("sparqlstream")
                width = self.duration(parts[0])
                return syntax.Range(width, self._slide(parts[1], width) if len(parts) > 1 else None)
            case "range_window":
                return self._range(parts, bare=bare)
            case "range_triples":
                by = self._partition(parts[0]) if parts else ()
                return self._count(cast(Token, body.children[-1]), "triples", by)
            case "count_elements":
                by = self._partition(parts[0]) if parts else ()
                return self._count(cast(Token, body.children[-1]), "elements", by)
            case _:
                by = self._partition(parts[0]) if parts else ()
                counter, size = body.children[-2:]
                return self._count(cast(Token, size), str(counter).lower(), by)

    def _range(self, parts: list[Branch], *, bare: bool) -> syntax.Range:
        width = self.duration(parts[0], bare=bare)
        slide: int | None = None
        time = None
        for part in parts[1:]:
            if part.data == "window_time":
                time = self.iri(trees(part)[0])
            else:
                slide = self._slide(part, width, bare=bare)
        return syntax.Range(width, slide, time)

    def _slide(self, tree: Branch, width: int, *, bare: bool = False) -> int:
        if tree.data == "tumbling":
            return _some(width, tree)
        (duration,) = trees(tree)
        return _some(self.duration(duration, bare=bare), duration)

    def _partition(self, tree: Branch) -> tuple[str, ...]:
        return tuple(self.var(part).name for part in trees(tree))

    def _count(self, token: Token, counter: str, by: tuple[str, ...]) -> syntax.Count:
        size = counted(token)
        if size == 0:
            raise QueryError("a window must hold at least one", span=span_of(token), hint="write 1 or more")
        unit = "solutions" if by else "triples" if counter == "triples" else "elements"
        return syntax.Count(size, unit, by)

    def _streaming_window(self, tree: Branch) -> syntax.Window:
        self.used.add("streaming-sparql")
        if tree.data == "streaming_elements":
            return self._count(cast(Token, tree.children[0]), "elements", ())
        parts = trees(tree)
        width = self.duration(parts[0], bare=True)
        if tree.data == "streaming_fixed":
            return syntax.Range(width, _some(width, tree))
        return syntax.Range(width, _some(self.duration(parts[1], bare=True), parts[1]) if len(parts) > 1 else None)

    def duration(self, tree: Branch, *, bare: bool = False) -> int:
        """Nanoseconds. Several parts are added up: `1m 30s`."""
        if tree.data == "bare_duration":
            if not bare:
                raise QueryError(
                    "this duration has no unit", span=span_of(tree), hint="write for example 10s, 250ms or PT2H"
                )
            return _fitting(counted(cast(Token, tree.children[0])) * MILLISECOND, tree)
        return _fitting(sum(self._duration_part(cast(Token, token)) for token in tree.children), tree)

    def _duration_part(self, token: Token) -> int:
        text = str(token)
        if token.type == "ISO_DURATION":
            try:
                return parse_iso_duration(text)
            except ValueError as error:
                raise QueryError(str(error), span=span_of(token), hint="write for example PT2H or PT0.5S") from None
        if len(text) > _LONGEST_DURATION:
            raise _too_long(token)
        found = re.fullmatch(r"(\d+)(?:\.(\d+))?\s*([A-Za-z]+)", text)
        unit = unit_nanoseconds(found[3]) if found else None
        if found is None or unit is None:
            raise QueryError(
                f"{found[3] if found else text!r} is not a unit of time",
                span=span_of(token),
                hint="the units are ns, us, ms, s, m, h, d and their English words",
            )
        fraction = found[2] or ""
        scaled = int(found[1] + fraction) * unit
        if scaled % 10 ** len(fraction):
            raise QueryError(f"{text} is finer than a nanosecond", span=span_of(token))
        return scaled // int(10 ** len(fraction))


def _some(slide: int, tree: Branch) -> int:
    if slide == 0:
        raise QueryError("a window cannot slide by nothing", span=span_of(tree))
    return slide


def _fitting(duration: int, tree: Branch) -> int:
    if duration > MOST_COUNTED:
        raise _too_long(tree)
    return duration


def _too_long(part: Branch | Token) -> QueryError:
    return QueryError(
        "this duration does not fit in 64 bits of nanoseconds", span=span_of(part), hint="the longest is 106751 days"
    )
