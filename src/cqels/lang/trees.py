"""Small questions asked of the parser's trees."""

from __future__ import annotations

from typing import TypeAlias

from lark import Token, Tree

from cqels.model.errors import QueryError, Span
from cqels.model.limits import MOST_COUNTED

Branch: TypeAlias = "Tree[Token]"


def trees(tree: Branch) -> list[Branch]:
    """The children that are rules, without tokens and without what is absent."""
    return [child for child in tree.children if isinstance(child, Tree)]


def span_of(part: Branch | Token | object) -> Span:
    if isinstance(part, Token):
        return Span(part.start_pos or 0, part.end_pos or 0)
    assert isinstance(part, Tree)
    return Span(0, 0) if part.meta.empty else Span(part.meta.start_pos, part.meta.end_pos)


def counted(token: Token) -> int:
    """The number that a row of digits says, if a word of 64 bits holds it."""
    digits = str(token).lstrip("0")
    if len(digits) > len(str(MOST_COUNTED)) or int(digits or "0") > MOST_COUNTED:
        hint = f"the largest is {MOST_COUNTED:,}"
        raise QueryError("this number does not fit in 64 bits", span=span_of(token), hint=hint)
    return int(digits or "0")
