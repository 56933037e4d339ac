"""What the package has compiled: it is taken where it fits the texts and the processor; then nothing is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cqels.kernels.compiler import kernel
from cqels.kernels.compiler.precompile import precompile
from cqels.lang import cache, parser

QUERY = """
import cqels
from cqels.kernels.compiler import kernel

def refuse(module):
    raise SystemExit(f"{module} was compiled")

kernel._compiled = refuse
with cqels.Engine() as engine:
    query = engine.register(
        "SELECT ?s (AVG(?o) AS ?m) WHERE { STREAM <http://ex.org/s> [RANGE 10s] { ?s ?p ?o } } GROUP BY ?s"
    )
    engine.push("http://ex.org/s", "<http://ex.org/a> <http://ex.org/p> 1 .", time="4s")
    print(len(query.take()))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    precompile(folder)
    return folder


def test_a_query_needs_no_compiler(compiled: Path, tmp_path: Path) -> None:
    if kernel.level() is None:
        pytest.skip("kernels are not compiled ahead for this processor")
    run = (
        f"from pathlib import Path; import cqels.kernels.compiler.kernel as k; k.COMPILED = {str(compiled)!r}\n{QUERY}"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    made = subprocess.run([sys.executable, "-c", run], env=environment, capture_output=True, text=True, check=False)
    assert (made.stdout, made.stderr) == ("1\n", "")


def test_what_is_not_of_these_texts_is_not_taken(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel.level() is None:
        pytest.skip("kernels are not compiled ahead for this processor")
    monkeypatch.setattr(kernel, "COMPILED", str(compiled))
    module = "cqels.kernels.operators.distinct"
    assert kernel.shipped(module) is not None
    monkeypatch.setattr(kernel, "_VERSION", -1)
    assert kernel.shipped(module) is None


def test_a_damaged_object_is_not_taken(compiled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    level = kernel.level()
    if level is None:
        pytest.skip("kernels are not compiled ahead for this processor")
    module = "cqels.kernels.operators.distinct"
    content = (compiled / level / kernel.object_name(module)).read_bytes()
    (tmp_path / level).mkdir()
    (tmp_path / level / kernel.object_name(module)).write_bytes(content[:-1])
    monkeypatch.setattr(kernel, "COMPILED", str(tmp_path))
    assert kernel.shipped(module) is None


def test_an_unknown_processor_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "level", lambda: None)
    assert kernel.shipped("cqels.kernels.operators.distinct") is None


def test_objects_of_older_texts_go(compiled: Path) -> None:
    for folder in compiled.iterdir():
        (folder / "distinct-0.o").write_bytes(b"old")
    made = precompile(compiled)
    assert sorted(made) == sorted(compiled.rglob("*.o"))


def test_the_tables_of_the_parser_are_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser.ship_tables(tmp_path)
    monkeypatch.setattr(cache, "SHIPPED", tmp_path)
    monkeypatch.setattr(cache.Lark, "__init__", None)  # which would make them
    made = cache.parser_of(parser._grammar(), **parser._OPTIONS)
    assert made.parse("SELECT * WHERE { }", start="query") is not None
