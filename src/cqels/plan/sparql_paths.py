"""Property paths as SPARQL text, and what they match at a term that the graph does not have."""

from __future__ import annotations

from math import prod

from cqels.plan.algebra import Choice, Inverse, Link, Negated, Path, Repeat, Steps


def path_text(path: Path) -> str:
    match path:
        case Link(iri=iri):
            return str(iri)
        case Inverse(path=inner):
            return f"^({path_text(inner)})"
        case Steps(paths=paths):
            return "(" + "/".join(path_text(each) for each in paths) + ")"
        case Choice(paths=paths):
            return "(" + "|".join(path_text(each) for each in paths) + ")"
        case Repeat(path=inner, low=low, many=many):
            return f"({path_text(inner)}){'?' if not many else '*' if low == 0 else '+'}"
        case Negated(forward=forward, backward=backward):
            names = [*map(str, forward), *(f"^{iri}" for iri in backward)]
            if names:
                return f"!({'|'.join(names)})"
            return "(<urn:any>|!(<urn:any>))"  # `!()`, which is in the grammar but not in every parser


def repeats(path: Path) -> bool:
    """Whether any part of the path is repeated or may be left out."""
    match path:
        case Repeat():
            return True
        case Inverse(path=inner):
            return repeats(inner)
        case Steps(paths=paths) | Choice(paths=paths):
            return any(repeats(each) for each in paths)
        case _:
            return False


def matches_nowhere(path: Path, *, both: bool) -> int:
    """How often a path leads from a term that is not in the graph to that same term (SPARQL 1.1 §18.4).

    `both`: the term is written at both ends; otherwise the other end is a variable.  A sequence meets in a variable
    that ranges over the graph's nodes, so only two steps between two terms can both stand still.
    """
    match path:
        case Repeat(low=0):
            return 1
        case Repeat(path=inner):
            return min(1, matches_nowhere(inner, both=False))
        case Inverse(path=inner):
            return matches_nowhere(inner, both=both)
        case Choice(paths=paths):
            return sum(matches_nowhere(each, both=both) for each in paths)
        case Steps(paths=(only,)):
            return matches_nowhere(only, both=both)
        case Steps(paths=paths) if both and len(paths) == 2:
            return prod(matches_nowhere(each, both=False) for each in paths)
        case _:
            return 0
