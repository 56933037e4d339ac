"""How deep a query may be nested: checked on the parser's tree, before anything walks down it.

Each construct costs as many calls inside one another as the deepest walk over it makes, and a chain of BINDs, OPTIONALs
or sums is as deep as it is long.  So one limit holds for all of them and their mixtures, whatever the machine: a query
within it is planned and run with the stack that Python gives to any thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from lark import Token

from cqels.lang.trees import Branch, span_of, trees
from cqels.model.errors import QueryError

MOST = 720
"""What a query may cost: the calls inside one another of the deepest walk over it."""

_GROUP, _SUB_SELECT, _EXISTS, _PATH, _NODE = 4, 3, 2, 6, 2
_JUNCTION, _CALL, _OPERATOR, _STEP = 6, 4, 4, 3

COSTS = {
    **dict.fromkeys(("group", "graph_pattern", "stream_pattern", "window_pattern", "service"), _GROUP),
    **dict.fromkeys(("sub_select",), _SUB_SELECT),
    **dict.fromkeys(("exists", "not_exists"), _EXISTS),
    **dict.fromkeys(("path", "path_sequence", "path_inverse", "path_repeat"), _PATH),
    **dict.fromkeys(("collection", "blank_node_property_list", "blank_node_property_list_path"), _NODE),
    **dict.fromkeys(("expression", "and_expression", "in_list", "not_in_list"), _JUNCTION),
    **dict.fromkeys(("built_in_call", "function_call", "iri_or_function"), _CALL),
    **dict.fromkeys(("comparison", "not_expression", "plus_expression", "minus_expression"), _OPERATOR),
    **dict.fromkeys(("numeric", "multiplicative", "count", "fold", "group_concat"), _OPERATOR),
}
"""What a node of the parser's tree costs whatever is in it."""

_CHAINED = frozenset({"optional", "minus", "bind"})
_COMPUTED_TOGETHER = frozenset({"var", "count", "fold", "group_concat"})
_TAILS = frozenset({"additive_tail", "multiplicative_tail"})


def check_nesting(tree: Branch) -> None:
    """Refuse a tree that is nested too deeply, at the first place where it is."""
    pending = [(tree, 0)]
    while pending:
        node, level = pending.pop()
        for part, cost in ((node, _cost(node)), *_links(node)):
            level += cost
            if level > MOST:
                raise _too_deep(part)
        pending += [(child, level) for child in reversed(trees(node))]


def _cost(tree: Branch) -> int:
    is_sub_select = tree.data == "group" and trees(tree)[0].data == "sub_select"  # its WHERE has the group that counts
    return 1 if is_sub_select else COSTS.get(tree.data, 0)


def _links(tree: Branch) -> Iterator[tuple[Branch, int]]:
    """The parts of a node that come to stand inside one another though they are written in a row, and their costs."""
    parts = trees(tree)
    match tree.data:
        case "group_sub":
            yield from ((part, _STEP) for part in parts if part.data in _CHAINED)
            yield from ((part, _STEP) for part in [part for part in parts if part.data == "filter"][:1])
        case "sequence":
            yield from ((part, _STEP) for part in parts[1:])
        case "group_or_union":
            yield from ((part, _STEP) for part in parts[1:2])
        case "select_query" | "sub_select":
            for part in parts:
                if part.data == "select_clause" and part.children[0] is not None:  # DISTINCT
                    yield part, _STEP
                for clause in (part, *trees(part)):
                    if part.data == "solution_modifier" and clause is not part:
                        yield clause, _STEP
                    yield from ((item, _STEP) for item in _computed(clause))
        case "numeric" | "multiplicative" | "additive_tail":
            yield from ((part, _OPERATOR) for part in parts if part.data in _TAILS)


def _computed(clause: Branch) -> list[Branch]:
    """What a clause of SELECT computes: each is a step of its own. An aggregate is none, nor a variable as it is."""
    if clause.data not in ("select_clause", "group_clause", "order_clause"):
        return []
    return [item for item in trees(clause) if trees(item)[0].data not in _COMPUTED_TOGETHER]


def _too_deep(place: Branch | Token) -> QueryError:
    return QueryError(
        "this is nested too deeply",
        span=span_of(place),
        hint="a query may have about 170 groups, 80 sub-selects, 170 operators or 230 BINDs inside one another",
    )
