"""Small questions asked of the parser's trees."""

from __future__ import annotations

from typing import TypeAlias

from lark import Token, Tree

from cqels.model.errors import Span

Branch: TypeAlias = "Tree[Token]"


def trees(tree: Branch) -> list[Branch]:
    """The children that are rules, without tokens and without what is absent."""
    return [child for child in tree.children if isinstance(child, Tree)]


def span_of(part: Branch | Token | object) -> Span:
    if isinstance(part, Token):
        return Span(part.start_pos or 0, part.end_pos or 0)
    assert isinstance(part, Tree)
    return Span(0, 0) if part.meta.empty else Span(part.meta.start_pos, part.meta.end_pos)
