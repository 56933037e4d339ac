"""What the pages of docs/ show is what happens: their commands and scripts are run in order, their files compared.

`REWRITE=1` fills in the output that is shown, and the page on the command line.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cqels.cli.app import app
from cqels.options import LIST_TABLES, PIPELINE_WORDS
from cqels.serve_options import WORDS as SERVE_WORDS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "cqels"
DOCS = ROOT / "docs"
FRAGMENTS = {"docs/benchmarks.md", "docs/deploy.md", "docs/engine.md", "docs/scenarios.md", "docs/spark.md"}
"""Pages whose blocks are parts of programs: they name files and clusters that are not here."""
MODULES = {
    str(path.relative_to(folder))
    for folder, under in ((ROOT, "tests"), (ROOT, "bench"), (ROOT / "src" / "cqels", "."))
    for path in [*(folder / under).rglob("*.py"), *(folder / under).rglob("*.lark")]
} | {path.name for path in ROOT.glob("*.py")}
"""The modules that pages may name: from the root, or from src/cqels."""
REWRITE = "REWRITE" in os.environ

BLOCK = re.compile(r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (?P<line>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
GENERATED = re.compile(r"^<!-- \S+ written by .*?^<!-- end of", re.DOTALL | re.MULTILINE)
MODULE = re.compile(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.(?:py|lark))`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def pages() -> list[str]:
    """The pages with something to run, and the READMEs of the examples."""
    found = [*DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    named = sorted({str(path.relative_to(ROOT)) for path in found} - FRAGMENTS)
    return [name for name in named if re.search(r"^```(console|python)$", (ROOT / name).read_text(), re.MULTILINE)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the examples and a `cqels`, as someone has it who has cloned the repository."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = tmp_path / "bin" / "cqels"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from cqels.cli import main; main()" "$@"\n')
    command.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("name", pages())
def test_page(name: str, folder: Path) -> None:
    page = ROOT / name
    written, shown, sent = page.read_text(), [], ""
    if "\nfrom cqels.spark import" in written:
        pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
    for block in BLOCK.finditer(written):
        text = block["text"]
        if block["kind"] == "console":
            text = COMMAND.sub(lambda found: f"$ {found['line']}\n{_command(found['line'], folder)}", text)
        elif block["kind"] == "python":
            sent = _script(text, folder)
        elif block["kind"] == "text" and written[: block.start()].endswith("```\n\n") and sent:
            text, sent = sent, ""
        shown.append(written[block.start() : block.start("text")] + text + "```")
    texts = iter(shown)
    now = BLOCK.sub(lambda _: next(texts), written)
    if REWRITE:
        page.write_text(now)
    assert now == written


def _script(text: str, folder: Path) -> str:
    """What a script prints; a Java that is started says more on standard error."""
    done = _run([sys.executable, "-c", text], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _command(line: str, folder: Path) -> str:
    done = _run(["bash", "-c", line], folder)
    return done.stdout + done.stderr


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    settings = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_files_that_are_shown(page: Path) -> None:
    for block in BLOCK.finditer(page.read_text()):
        if block["title"] is not None:
            assert block["text"] in (ROOT / block["title"]).read_text(), block["title"]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_and_lines(page: Path) -> None:
    text = page.read_text()
    for link in LINK.findall(text):
        assert (page.parent / link).exists(), link
    for module in MODULE.findall(text):
        assert module in MODULES or module in {Path(each).name for each in MODULES}, module
    prose = GENERATED.sub("", BLOCK.sub("", text)).splitlines()
    assert [line for line in prose if len(line) > 160 and not line.startswith("|")] == []


def test_modules_that_docstrings_name_are_there() -> None:
    packages = "|".join(sorted(path.name for path in SOURCE.iterdir() if path.is_dir()))
    named = re.compile(rf"`(?:cqels\.)?((?:{packages})(?:\.\w+)+)`")
    for path in SOURCE.rglob("*.py"):
        for found in named.findall(path.read_text()):
            parts = found.split(".")
            places = [SOURCE.joinpath(*parts[:count]) for count in range(2, len(parts) + 1)]
            is_there = any(place.is_dir() or place.with_suffix(".py").exists() for place in places)
            assert is_there or found.startswith("spark.jars") or found == "pipeline.toml", f"{path}: `{found}`"


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert named == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_command_line() -> None:
    page = DOCS / "reference" / "command-line.md"
    now = "\n".join(_command_line())
    if REWRITE:
        page.write_text(now)
    assert page.read_text() == now


def test_pipeline_file() -> None:
    """The page has every word of every table, and no other."""
    text = (DOCS / "reference" / "pipeline-file.md").read_text()
    parts = re.split(r"^## `\[+(\w+)\]+`$", text, flags=re.MULTILINE)
    found = {
        name: re.findall(r"^\| `([a-z-]+)` \|", part, re.MULTILINE)
        for name, part in zip(parts[1::2], parts[2::2], strict=True)
    }
    words = {each.name: sorted(word.replace("_", "-") for word in each.words()) for each in LIST_TABLES}
    options = {"pipeline": PIPELINE_WORDS, "serve": SERVE_WORDS}
    words |= {name: sorted(word.replace("_", "-") for word in each) for name, each in options.items()}
    words["prefixes"] = []
    assert {name: sorted(each) for name, each in found.items()} == words


def _command_line() -> Iterator[str]:
    yield "# Command line\n"
    yield "This page is made from `cqels --help`, and compared with it by a test. A command that fails because of its"
    yield "input says so in one sentence on standard error; its exit code is 2. Results go to standard output, all else"
    yield "to standard error.\n"
    yield from _described(typer.main.get_command(app), "cqels")


def _described(command: Any, name: str) -> Iterator[str]:
    yield f"## {name}\n"
    for part in re.split(r"\n\s*\n", (command.help or "").replace("\b", "").strip()):
        lines = part.strip("\n").splitlines()
        is_code = all(line.startswith("    ") for line in lines)
        yield "\n".join(lines if is_code else (line.strip() for line in lines)) + "\n"
    parameters = [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    if parameters:
        yield "| option | what it does |"
        yield "|---|---|"
        yield from map(_parameter, parameters)
        yield ""
    for inner, each in getattr(command, "commands", {}).items():
        yield from _described(each, f"{name} {inner}")


def _parameter(parameter: Any) -> str:
    name = next((each for each in parameter.opts if each.startswith("-")), "")
    shown = " ".join(filter(None, (name, parameter.metavar))) or parameter.name
    told = " ".join((parameter.help or "").split()).replace("<", "&lt;")
    return f"| `{shown.replace('|', chr(92) + '|')}` | {told} |"
