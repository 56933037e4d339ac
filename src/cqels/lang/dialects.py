"""Which dialect a query is written in, told by its own words; words of two dialects in one query are refused."""

from __future__ import annotations

from dataclasses import replace

from cqels.lang import syntax
from cqels.model.errors import QueryError, Span

DIALECTS = ("cqels-ql", "c-sparql", "rsp-ql", "sparqlstream", "streaming-sparql", "ep-sparql")


def detect(query: syntax.Query, used: set[str], wanted: str | None) -> syntax.Query:
    """The query with its dialect filled in. `used` are the marks that the builder met; `wanted` insists on one."""
    if wanted is not None and wanted not in DIALECTS:
        raise QueryError(f"there is no dialect {wanted!r}", hint=f"the dialects are {', '.join(DIALECTS)}")
    found = _found(query, used)
    if wanted is None:
        return replace(query, dialect=found)
    if wanted != found and _plain(query, used):
        found = wanted
    if wanted == "sparqlstream" and found == "c-sparql" and all(clause.named for clause in query.dataset.streams):
        found = wanted
    if found != wanted:
        clauses = query.dataset.streams
        raise QueryError(
            f"this is written in {found}, not in {wanted}", span=clauses[0].span if clauses else query.form.span
        )
    return replace(query, dialect=found)


def _plain(query: syntax.Query, used: set[str]) -> bool:
    """No word of the text belongs to one dialect alone."""
    return not query.dataset.streams and not used & {"stream", "seq", "rsp-ql"}


def _found(query: syntax.Query, used: set[str]) -> str:
    clauses = query.dataset.streams
    windows = [clause for clause in clauses if clause.name is not None]
    others = [clause for clause in clauses if clause.name is None]
    if "stream" in used and clauses:
        raise _mixed("STREAM { } patterns", "a stream named before WHERE", clauses[0].span)
    if windows and others:
        raise _mixed("FROM NAMED WINDOW", "FROM STREAM", others[0].span)
    if "rsp-ql" in used:
        if others:
            raise _mixed("WINDOW { } patterns", "FROM STREAM", others[0].span)
        return "rsp-ql"
    if clauses:
        if "streaming-sparql" in used:
            return "streaming-sparql"
        return "sparqlstream" if "sparqlstream" in used else "c-sparql"
    return "ep-sparql" if used & {"seq", "interval"} and "stream" not in used else "cqels-ql"


def _mixed(one: str, other: str, span: Span) -> QueryError:
    return QueryError(f"{one} and {other} cannot stand in one query", span=span, hint="write it in one dialect")
