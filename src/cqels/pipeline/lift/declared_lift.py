"""The lifting of a declared live stream: the form of its messages, so that a text means the same on every way in."""

from __future__ import annotations

from dataclasses import replace

from cqels.ingest.declarations import RECORDS, FormatName, StreamDeclaration
from cqels.ingest.source_address import shown_place
from cqels.model.errors import CqelsError, Source
from cqels.pipeline.lift import row_lifts
from cqels.pipeline.lift.row_lifts import Lift


def lift_of(declaration: StreamDeclaration) -> Lift:
    """How the messages of a declared stream become elements.

    Where no format is declared, they are records if there is a template (CSV if the columns are named, else JSON), and
    else what `Engine.push` takes: lines of timed N-Triples, each an element; or, where the source has the time, one
    element in N-Triples, N-Quads or Turtle.
    """
    format = declared_format(declaration)
    own = "source" if declaration.own_time or declaration.clock == "arrival" else None
    time = own or (None if declaration.time is None else declaration.time.value)
    unit, element = declaration.unit, declaration.element
    if format == "parquet":
        raise _refused(declaration, "Parquet is read from files", "format=json or csv with a template")
    if format in RECORDS:
        return _record_lift(declaration, format, own)
    if format == "ntriples":
        if own is not None:
            _only(declaration, "document")
            lift = row_lifts.ntriples(time="source")
        elif element == "graph":
            lift = row_lifts.nquads(time=time, unit=unit)
        else:
            default = "line" if time is None else "subject"
            lift = row_lifts.ntriples(element=element or default, time=time, unit=unit)  # type: ignore[arg-type]
    else:
        _only(declaration, "document", "line")
        if time is None:
            hint = "time=source is that of the message, time=<iri> the object of a predicate"
            raise _refused(declaration, f"stream <{declaration.iri}> has no time", hint)
        lift = {"turtle": row_lifts.turtle, "trig": row_lifts.trig, "jsonld": row_lifts.jsonld}[format](
            time=time, unit=unit
        )
    return replace(lift, drops_times=declaration.clock == "arrival")


def declared_format(declaration: StreamDeclaration) -> FormatName:
    """The format that is declared, or that a template and names of columns tell."""
    if declaration.format is not None:
        return declaration.format
    if declaration.template is None:
        return "ntriples"
    return "csv" if declaration.columns else "json"


def _record_lift(declaration: StreamDeclaration, format: FormatName, own: str | None) -> Lift:
    if declaration.template is None:
        raise _refused(
            declaration,
            f"nothing says how the records of stream <{declaration.iri}> become triples",
            "declare a lifting template: template=file.toml" + ("; or format=jsonld" if format == "json" else ""),
        )
    if declaration.time is not None:
        hint = "name the column of the time in the template and remove time="
        raise _refused(declaration, "the time of a record is a column, not a predicate", hint)
    _only(declaration, "document", "line")
    if format == "json":
        return row_lifts.json(declaration.template, time=own, unit=declaration.unit)
    columns = declaration.columns
    return row_lifts.csv(declaration.template, header=columns or None, time=own, unit=declaration.unit)


def _only(declaration: StreamDeclaration, *kinds: str) -> None:
    if declaration.element not in (None, *kinds):
        message = f"element={declaration.element} does not fit: a message is an element"
        raise _refused(declaration, message, "leave it out, or write the elements to a file")


def _refused(declaration: StreamDeclaration, message: str, hint: str) -> CqelsError:
    return CqelsError(message, source=Source("", shown_place(declaration)), hint=hint)
