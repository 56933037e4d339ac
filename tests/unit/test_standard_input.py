"""Standard input as a stream: read as it comes, with the results of a file of the same lines."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqels.cli.app import app
from cqels.ingest import Rejected, declare, read_stream
from cqels.model.errors import CqelsError, DataError
from cqels.model.time import SECOND

S = "http://ex.org/s"
QUERY = "SELECT ?s ?v { STREAM <http://ex.org/s> [RANGE 10s] { ?s <x:p> ?v } }"
TEMPLATE = 'subject = "x:{id}"\n[time]\ncolumn = "at"\n[predicates]\n"x:p" = "value"\n'
CQELS = (sys.executable, "-c", "from cqels.cli import main; main()")
ENGINES = ("embedded", "reference")


class Slow(io.RawIOBase):
    """Gives a piece at a time, and knows how many were asked for."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.pieces.pop(0) if self.pieces else b""
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.fixture
def rejected() -> list[Rejected]:
    return []


def sent(monkeypatch: pytest.MonkeyPatch, *pieces: bytes) -> Slow:
    slow = Slow(*pieces)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(slow)))
    return slow


def test_lines_are_elements_as_they_come(monkeypatch: pytest.MonkeyPatch, rejected: list[Rejected]) -> None:
    slow = sent(
        monkeypatch, b"\xef\xbb\xbf<x:a> <x:p> 1 ", b"0 .\n<x:a> <x:p> 2 1000 .\nno", b" line\n", b"<x:b> <x:p> 3 2000"
    )
    elements = read_stream(declare(S, "-"), rejected.append)
    assert next(elements).time == 0
    assert len(slow.pieces) == 2
    assert [each.time // SECOND for each in elements] == [1, 2]
    assert [each.place for each in rejected] == ["-:3"]


def test_the_first_line_that_tells_decides(monkeypatch: pytest.MonkeyPatch, rejected: list[Rejected]) -> None:
    slow = sent(monkeypatch, b"what\n", b"<x:a> <x:at> 5 .\n", b"<x:b> <x:at> 6 .\n")
    elements = read_stream(declare(S, "-", time="x:at", element="line", unit="s"), rejected.append)
    assert next(elements).time == 5 * SECOND
    assert len(slow.pieces) == 1
    assert next(elements).time == 6 * SECOND


@pytest.mark.parametrize(
    ("format", "lines"),
    [
        ("csv", b"id,at,value\na,0,1\nb,1000,2\n,2000,3\n"),
        ("json", b'{"id": "a", "at": 0, "value": 1}\n{"id": "b", "at": 1000, "value": 2}\n{"at": 2000}\n'),
    ],
)
def test_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rejected: list[Rejected], format: str, lines: bytes
) -> None:
    (tmp_path / "lift.toml").write_text(TEMPLATE)
    sent(monkeypatch, *lines.splitlines(keepends=True))
    found = read_stream(declare(S, "-", format=format, template=tmp_path / "lift.toml"), rejected.append)
    assert [each.time // SECOND for each in found] == [0, 1]
    assert [each.place for each in rejected] == ["-:4" if format == "csv" else "-:3"]


def test_a_time_far_beyond_the_clock_is_rejected(monkeypatch: pytest.MonkeyPatch, rejected: list[Rejected]) -> None:
    lines = b'<x:a> <x:p> 1 "2200-01-01T00:00:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime> .\n'
    sent(monkeypatch, lines)
    assert list(read_stream(declare(S, "-"), rejected.append)) == []
    assert len(rejected) == 1


REFUSED = {
    "no format": ({"template": "lift.toml"}, "the format is not declared"),
    "parquet": ({"format": "parquet", "template": "lift.toml"}, "parquet is read as a whole"),
    "document": ({"format": "turtle", "time": "x:at"}, "turtle is read as a whole"),
    "no template": ({"format": "csv"}, "nothing says how the records"),
    "no time": ({"format": "turtle", "element": "line"}, "has no time"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_at_once(name: str) -> None:
    options, sentence = REFUSED[name]
    with pytest.raises(CqelsError, match=sentence):
        read_stream(declare(S, "-", **options), lambda rejected: None)


def test_a_header_without_a_column_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lift.toml").write_text(TEMPLATE)
    sent(monkeypatch, b"id,at\n", b"a,0\n")
    with pytest.raises(DataError, match="no column 'value'"):
        list(read_stream(declare(S, "-", format="csv", template=tmp_path / "lift.toml"), lambda rejected: None))


# ---------------------------------------------------------------- the command


@pytest.fixture(params=ENGINES)
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`cqels run` whose input is open."""
    (tmp_path / "q.rq").write_text(QUERY)
    process = subprocess.Popen(
        [
            *CQELS,
            "run",
            "q.rq",
            "--engine",
            request.param,
            "--stream",
            f"<{S}>=-",
        ],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield process
    process.kill()
    process.communicate()


def answered(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Send a line, wait for a row."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline()


def test_results_come_while_the_input_is_open(command: subprocess.Popen[bytes]) -> None:
    assert answered(command, b"<x:a> <x:p> 1 0 .\n") == b"0s  <x:a> 1\n"
    assert answered(command, b"no line\n<x:a> <x:p> 2 1000 .\n") == b"1s  <x:a> 2\n"
    out, told = command.communicate(b"<x:b> <x:p> 3 2000 .", timeout=60)
    assert out == b"2s  <x:b> 3\n"
    assert b"rejected: -:2: " in told
    assert told.endswith(b"3 elements, 3 results, 1 rejected, up to 2s\n")
    assert command.returncode == 0


def test_an_interrupt_ends_it_with_the_summary(command: subprocess.Popen[bytes]) -> None:
    assert answered(command, b"<x:a> <x:p> 1 0 .\n") == b"0s  <x:a> 1\n"
    os.kill(command.pid, signal.SIGINT)
    assert command.wait(60) == 130
    assert command.stderr is not None
    assert command.stderr.read().endswith(b"1 elements, 1 results, up to 0s\n")


@pytest.mark.parametrize("engine", ENGINES)
def test_strict_ends_it_at_the_first_malformed_line(tmp_path: Path, engine: str) -> None:
    (tmp_path / "q.rq").write_text(QUERY)
    words = ["run", "q.rq", "--engine", engine, "--strict", "--stream", f"<{S}>=-"]
    with subprocess.Popen(
        [*CQELS, *words], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert answered(process, b"<x:a> <x:p> 1 0 .\n") == b"0s  <x:a> 1\n"
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"no line\n")
        process.stdin.flush()
        assert process.wait(60) == 2  # though the input is open
        assert b"error: -:2: " in process.stderr.read()


TWICE = {
    "two streams": (("q.rq", "--stream", f"<{S}>=-", "--stream", "<x:t>=-"), "of two streams"),
    "a query": (("-", "--stream", f"<{S}>=-"), "of a query and of a stream"),
}


@pytest.mark.parametrize("name", TWICE)
def test_it_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    words, sentence = TWICE[name]
    (tmp_path / "q.rq").write_text(QUERY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(QUERY))
    monkeypatch.setattr(sys, "argv", ["cqels", "run", "--engine", "embedded", *words])
    with pytest.raises(CqelsError, match=sentence):
        app(standalone_mode=False)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("element", ["line", "time", "subject"])
def test_it_gives_what_a_file_gives(tmp_path: Path, engine: str, element: str) -> None:
    lines = [f"<x:s{number % 3}> <x:p> {number} {number // 4 * 1000} ." for number in range(40)]
    lines[17] = "no line"
    (tmp_path / "obs.nt").write_text("\n".join(lines))
    (tmp_path / "q.rq").write_text(QUERY)

    def run(path: str) -> bytes:
        words = ["run", "q.rq", "--engine", engine, "--emit", "changes", "--stream", f"<{S}>={path}?element={element}"]
        done = subprocess.run(
            [*CQELS, *words],
            cwd=tmp_path,
            input=(tmp_path / "obs.nt").read_bytes(),
            capture_output=True,
            check=True,
        )
        return done.stdout + done.stderr.replace(path.encode() + b":", b"at ")

    assert run("-") == run("obs.nt")
