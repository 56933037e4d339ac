"""Whether two results are the same: bags or lists of solutions, or graphs, up to the names of blank nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from pyoxigraph import BlankNode, CanonicalizationAlgorithm, Dataset, Literal, Quad

from cqels.model.terms import Term, Triple

Row = Mapping[str, Term]
Key = Callable[[str, Term], object]
"""What a term in a column is compared by, unless it is a blank node."""

_XSD = "http://www.w3.org/2001/XMLSchema#"
_EXACT = {_XSD + "integer", _XSD + "decimal"}
_ROUNDED = {_XSD + "float", _XSD + "double"}


def same_graph(one: Iterable[Triple], other: Iterable[Triple]) -> bool:
    left, right = (Dataset(Quad(*triple) for triple in triples) for triples in (one, other))
    for graph in (left, right):
        graph.canonicalize(CanonicalizationAlgorithm.UNSTABLE)
    return left == right


def by_value_in(computed: Collection[str]) -> Key:
    """Terms are compared as RDF terms, but numbers in columns that the query computes by value and datatype.

    The W3C leaves the lexical form of computed numbers open, and the suites write it in several ways.
    """

    def key(column: str, term: Term) -> object:
        if column not in computed or not isinstance(term, Literal):
            return term
        name = term.datatype.value
        try:
            if name in _EXACT:
                return name, Decimal(term.value)
            if name in _ROUNDED:
                value = float(term.value)
                return name, "NaN" if math.isnan(value) else value
        except (ValueError, InvalidOperation):
            return term
        return term

    return key


def same_rows(
    found: Sequence[Row], wanted: Sequence[Row], key: Key, *, ordered: bool = False, lax: bool = False
) -> bool:
    """The rows are equal (as a list if `ordered`, else as a bag) for some one-to-one renaming of blank nodes.

    If `lax`, which is for rows without blank nodes, each distinct row has to be found at least once and not too often.
    """
    if lax:
        counts, most = _counts(found, key), _counts(wanted, key)
        return counts.keys() == most.keys() and counts <= most
    if len(found) != len(wanted):
        return False
    renaming: dict[tuple[Term, str], Term] = {}
    if ordered:
        return all(_renames(left, right, key, renaming) for left, right in zip(found, wanted, strict=True))
    if _counts(found, key) != _counts(wanted, key):
        return False
    left, right = ([row for row in rows if any(map(_is_blank, row.values()))] for rows in (found, wanted))
    return _matched(left, right, key, renaming)


def _counts(rows: Iterable[Row], key: Key) -> Counter[frozenset[tuple[str, object]]]:
    """How often each row is there, all blank nodes taken for the same."""
    return Counter(
        frozenset((name, "_:" if _is_blank(term) else key(name, term)) for name, term in row.items()) for row in rows
    )


def _is_blank(term: Term) -> bool:
    return isinstance(term, BlankNode)


def _matched(found: list[Row], wanted: list[Row], key: Key, renaming: dict[tuple[Term, str], Term]) -> bool:
    """Find a partner for the first row, then for the rest; go back where that does not work out."""
    if not found:
        return True
    first, *rest = found
    for place, candidate in enumerate(wanted):
        attempt = dict(renaming)
        others = wanted[:place] + wanted[place + 1 :]
        if _renames(first, candidate, key, attempt) and _matched(rest, others, key, attempt):
            return True
    return False


def _renames(left: Row, right: Row, key: Key, renaming: dict[tuple[Term, str], Term]) -> bool:
    """Extend the renaming, which has both directions in it, so that the rows become equal."""
    if left.keys() != right.keys():
        return False
    for name, term in left.items():
        partner = right[name]
        if _is_blank(term) and _is_blank(partner):
            there, back = renaming.setdefault((term, "→"), partner), renaming.setdefault((partner, "←"), term)
            if there != partner or back != term:
                return False
        elif _is_blank(term) or _is_blank(partner) or key(name, term) != key(name, partner):
            return False
    return True
