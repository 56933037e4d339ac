"""Stream declarations of the command line."""

from pathlib import Path

import pytest
from pyoxigraph import NamedNode

from cqels.ingest import StreamDeclaration, declare, parse_declaration
from cqels.ingest.source_address import address_of
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


def test_live_sources_have_options_of_their_own() -> None:
    text = "<x:s>=mqtt://me:${SECRET}@host:1883/building/+/temp?template=t.toml&format=json&qos=1&password=a%26b"
    found = parse_declaration(text)
    assert found.path == "mqtt://me:${SECRET}@host:1883/building/+/temp"
    assert found.template == Path("t.toml")
    assert found.source == (("qos", "1"), ("password", "a&b"))
    assert "a&b" not in repr(found)
    words = {"template": "t.toml", "format": "json", "qos": "1", "password": "a&b"}
    assert declare("x:s", found.path, **words) == found


def test_the_time_of_a_message() -> None:
    found = parse_declaration("<x:s>=kafka://a:9092,b/topic?time=source&kafka.fetch.min.bytes=9")
    assert (found.own_time, found.time) == (True, None)
    assert found.source == (("kafka.fetch.min.bytes", "9"),)
    assert declare("x:s", "tcp://h:1", time="source").own_time


def test_a_query_of_the_url_itself_ends_with_a_second_question_mark() -> None:
    found = parse_declaration("<x:s>=https://h/events?city=galway&n=1?time=<x:t?a>&header=A: b&header=C: d")
    assert found.path == "https://h/events?city=galway&n=1"
    assert found.time == NamedNode("x:t?a")
    assert found.source == (("header", "A: b"), ("header", "C: d"))
    assert parse_declaration("<x:s>=wss://h/events?time=<x:t?a>").path == "wss://h/events"
    assert parse_declaration("<x:s>=wss://h/events?a=b?").path == "wss://h/events?a=b"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("<x:s>=mqt://h/t", "there is no source mqt://", "did you mean mqtt://?"),
        ("<x:s>=amqp://h/t", "there is no source amqp://", "there are mqtt://"),
        ("<x:s>=mqtt://h/t?qso=1", "stream option 'qso' does not exist", "did you mean qos?"),
        ("<x:s>=mqtt://h/t?qos=3", "'3' is not taken", "it is 0 or 1"),
        ("<x:s>=mqtt://h/t?start=latest", "stream option 'start' does not exist", "retained"),
        ("<x:s>=http://h/t?city=x", "stream option 'city' does not exist", "second '?'"),
        ("<x:s>=http://h/t?header=x", "'x' is not a header", "Accept-Language"),
        ("<x:s>=x.nt?qos=1", "stream option 'qos' does not exist", "lateness"),
        ("<x:s>=x.nt?time=source", "files have no time of their own", "clock=arrival"),
        ("<x:s>=tcp://h:1?columns=a,,b", "'a,,b' are not names of columns", "time,sensor"),
    ],
)
def test_errors_of_live_sources(text: str, message: str, hint: str) -> None:
    with pytest.raises(CqelsError) as caught:
        parse_declaration(text)
    assert caught.value.message == message
    assert hint in (caught.value.hint or "")


def test_secrets_are_not_shown() -> None:
    secrets = "header=X-Key: abc", "password=abc", "header=Authorization: Bearer abc", "send=abc"
    for secret in secrets:
        with pytest.raises(CqelsError) as caught:
            parse_declaration(f"<x:s>=wss://me:abc@h/t?{secret}&qos=1")
        assert "abc" not in str(caught.value)


def test_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PASSWORD", "s:e/c")
    found = address_of(parse_declaration("<x:s>=mqtt://me:${PASSWORD}@host/a/+?client=c"))
    assert (found.host, found.port(1883), found.path) == ("host", 1883, "/a/+")
    assert (found.user, found.password, found.get("client")) == ("me", "s:e/c", "c")
    assert found.place == "mqtt://…@host/a/+"
    assert "s:e/c" not in repr(found)
    (tmp_path / "secret").write_text("abc\n")
    found = address_of(parse_declaration(f"<x:s>=kafka://a:1,[::1]:2/t?user=u&password-file={tmp_path}/secret"))
    assert (found.hosts, found.password) == ((("a", 1), ("::1", 2)), "abc")
    with pytest.raises(CqelsError, match="the environment has no variable NOTHING"):
        address_of(parse_declaration("<x:s>=ws://h/?header=X-Key: ${NOTHING}"))
    with pytest.raises(CqelsError, match="'h:x' is not a host with a port"):
        address_of(parse_declaration("<x:s>=tcp://h:x"))
