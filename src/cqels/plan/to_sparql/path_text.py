"""Property paths as SPARQL text, and what they match at a term that the graph does not have."""

from __future__ import annotations

from math import prod

from cqels.lang.syntax import Choice, Inverse, Link, Negated, Path, Repeat, Steps


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


def ways_to_stay(path: Path) -> int:
    """How often a path leads from a term that is not in the graph to that same term (SPARQL 1.1 §18.4)."""
    match path:
        case Repeat(low=0):
            return 1
        case Repeat(path=inner):
            return min(1, ways_to_stay(inner))
        case Inverse(path=inner):
            return ways_to_stay(inner)
        case Choice(paths=paths):
            return sum(map(ways_to_stay, paths))
        case Steps(paths=paths):
            return prod(map(ways_to_stay, paths))
        case _:
            return 0
