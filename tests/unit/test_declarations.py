"""Stream declarations of the command line."""

from pathlib import Path

import pytest
from pyoxigraph import NamedNode

from cqels.ingest import StreamDeclaration, declare, parse_declaration
from cqels.model.errors import CqelsError
from cqels.model.time import SECOND


def test_everything_at_once() -> None:
    text = (
        "<http://ex.org/s?x=1>=data/*.csv.gz?element=subject&time=<http://ex.org/t?a=1&b=2>&unit=s&lateness=2s&idle=1m"
    )
    assert parse_declaration(text + "&format=csv&template=lift.toml") == StreamDeclaration(
        iri="http://ex.org/s?x=1",
        path="data/*.csv.gz",
        element="subject",
        time=NamedNode("http://ex.org/t?a=1&b=2"),
        unit="s",
        lateness=2 * SECOND,
        idle=60 * SECOND,
        format="csv",
        template=Path("lift.toml"),
    )


def test_brackets_may_be_left_out() -> None:
    expected = StreamDeclaration("http://ex.org/s", "a=b.nt", time=NamedNode("http://ex.org/t"))
    assert parse_declaration("http://ex.org/s=a=b.nt?time=http://ex.org/t") == expected


def test_keyword_arguments_are_the_same_words() -> None:
    words = {"element": "line", "time": "<http://ex.org/t>", "lateness": "2s", "format": "ttl"}
    line = "&".join(f"{name}={value}" for name, value in words.items())
    assert declare("http://ex.org/s", Path("x"), **words) == parse_declaration(f"<http://ex.org/s>=x?{line}")
    assert declare("http://ex.org/s", "x", lateness=5, time=NamedNode("x:t")).lateness == 5


@pytest.mark.parametrize(
    ("text", "message", "marked", "hint"),
    [
        ("x.nt", "a stream is declared as '<iri>=path'", "x.nt", "write"),
        ("<x:s", "a stream is declared as '<iri>=path'", "<x:s", "write"),
        ("x:s?a=1=x.nt", "the stream's IRI does not show where it ends", "x:s?a", "angle brackets"),
        ("<s>=x.nt", "stream 's' is not an IRI", "s", "in full"),
        ("<x:s>=", "the stream has no path", "<x:s>=", "write"),
        ("<x:s>=x.nt?late=2s", "stream option 'late' does not exist", "late", "lateness"),
        ("<x:s>=x.nt?unit=s&lateness", "'lateness' is not an option with a value", "lateness", "the options are"),
        ("<x:s>=x.nt?lateness=2", "the duration '2' has no unit", "2", "write 2s"),
        ("<x:s>=x.nt?element=row", "'row' is not a kind of element", "row", "line, time, subject"),
        ("<x:s>=x.nt?format=pdf", "'pdf' is not a format", "pdf", "turtle"),
        ("<x:s>=x.nt?unit=s&unit=ms", "stream option 'unit' is given twice", "unit", "remove"),
        ("<x:s>=x.nt?time=t", "'t' is not an IRI", "t", "generatedAtTime"),
    ],
)
def test_errors_point_into_the_text(text: str, message: str, marked: str, hint: str) -> None:
    with pytest.raises(CqelsError) as caught:
        parse_declaration(text)
    error = caught.value
    assert error.message == message
    assert error.span is not None
    assert text[error.span.start : error.span.end] == marked
    assert hint in (error.hint or "")


def test_keyword_errors() -> None:
    with pytest.raises(CqelsError, match="stream option 'late' does not exist"):
        declare("x:s", "x.nt", late="2s")
    with pytest.raises(CqelsError, match="the lateness of stream <x:s> cannot be read"):
        declare("x:s", "x.nt", lateness="soon")
