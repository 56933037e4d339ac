"""Property paths as SPARQL text, and what they match at a term that the graph does not have."""

from __future__ import annotations

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


def stands_still(path: Path) -> bool:
    """Whether a path leads from a term that is not in the graph to that same term, in a variable (SPARQL 1.1 §18.4).

    A sequence does not: its steps meet in a variable that ranges over the graph's nodes.
    """
    match path:
        case Repeat(path=inner, low=low):
            return low == 0 or stands_still(inner)
        case Inverse(path=inner):
            return stands_still(inner)
        case Choice(paths=paths):
            return any(stands_still(each) for each in paths)
        case _:
            return False
