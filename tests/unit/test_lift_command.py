"""`cqels lift` shows what a template makes of records, and why one is rejected."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyoxigraph import RdfFormat, parse

from cqels.cli import main

Run = Callable[..., tuple[int, str, str]]
TEMPLATE = """
subject = "ex:{@topic.2}/{id}"
[prefixes]
ex = "http://ex.org/"
[time]
column = "at"
[predicates]
a = { iri = "ex:Reading" }
"ex:value" = "v"
"ex:key" = "@key"
"ex:unit" = { column = "@header.unit", language = "en" }

"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("t.toml").write_text(TEMPLATE)
    Path("s.jsonl").write_text('{"id": 1, "at": 1000, "v": 2}\n{"id": 2, "v": 3}\n{"id": 3, "at": 2000, "v": 1e3}\n')

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cqels", "lift", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


AROUND = ("--topic", "home/hall/temp", "--key", "k", "--header", "unit=C")


def test_records_as_turtle(run: Run) -> None:
    code, out, err = run("t.toml", "s.jsonl", *AROUND)
    assert (code, err) == (0, "2 elements, 8 triples, 1 rejected\n")
    assert "# s.jsonl:1  1s\n<http://ex.org/hall/1> a ex:Reading ;\n    ex:value 2 ;\n" in out
    assert '    ex:key "k" ;\n    ex:unit "C"@en .\n' in out
    assert '# s.jsonl:2  rejected: the record has no timestamp\n# | {"id": 2, "v": 3}\n' in out
    turtle = set(map(str, parse(out, RdfFormat.TURTLE)))
    _, out, _ = run("t.toml", "s.jsonl", *AROUND, "--format", "nt")
    assert turtle == set(map(str, parse(out, RdfFormat.N_TRIPLES)))
    assert len(turtle) == 8


def test_some_records_and_a_time_of_arrival(run: Run) -> None:
    Path("t.toml").write_text(Path("t.toml").read_text().replace('[time]\ncolumn = "at"\n', ""))
    code, out, err = run("t.toml", "s.jsonl", *AROUND, "--arrival", "5s", "--records", "2")
    assert (code, err) == (0, "2 elements, 8 triples\n")
    assert "# s.jsonl:2  5s" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("t.toml", "none.csv"), "no file at 'none.csv'"),
        (("none.toml", "s.jsonl"), "the template cannot be read"),
        (("t.toml", "s.jsonl", "--header", "unit"), "'unit' is not a header with a value"),
        (("t.toml", "s.jsonl", "--arrival", "soon"), "the time of arrival cannot be read"),
        (("t.toml", "s.jsonl", "--unit", "y"), "'y' is not a unit of time"),
    ],
)
def test_mistakes(run: Run, words: tuple[str, ...], message: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in err
