"""The command line as a user meets it: output, exit codes, one clear sentence for each mistake."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cqels.cli import main

Run = Callable[..., tuple[int, str, str]]

QUERY = """PREFIX : <http://ex.org/>
SELECT ?room (COUNT(*) AS ?n) WHERE { STREAM :obs [RANGE 10s] { ?s :temp ?t } ?s :in ?room FILTER(?t > 30) }
GROUP BY ?room HAVING (COUNT(*) > 1)
"""
ROOMS = "@prefix : <http://ex.org/> . :s1 :in :kitchen . :s2 :in :kitchen ."
XSD = "http://www.w3.org/2001/XMLSchema#"
OBS = "".join(
    f'<http://ex.org/{sensor}> <http://ex.org/temp> "{value}"^^<{XSD}integer> "{time}" .\n'
    for sensor, value, time in (("s1", 31, 0), ("s2", 33, 4000), ("s1", 20, 11000))
)


@pytest.fixture(params=["embedded", "reference"])
def run(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Run:
    """Runs a command; `cqels run` on either engine."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"hot.rq": QUERY, "rooms.ttl": ROOMS, "obs.nt": OBS}.items():
        Path(name).write_text(text)

    def call(*words: str) -> tuple[int, str, str]:
        engine = ("--engine", request.param) if words[0] == "run" and "--engine" not in words else ()
        monkeypatch.setattr(sys, "argv", ["cqels", *words, *engine])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


HOT = ("run", "hot.rq", "--stream", "<http://ex.org/obs>=obs.nt", "--data", "rooms.ttl")


def test_run_prints_exact_results(run: Run) -> None:
    assert run(*HOT, "--emit", "changes") == (
        0,
        "4s  + :kitchen 2\n11s  - :kitchen 2\n",
        "3 elements, 2 results, up to 11s\n",
    )


def test_run_writes_files_and_goes_on_until(run: Run) -> None:
    code, out, _ = run(*HOT, "--format", "csv", "--out", "out.csv", "--until", "30s", "--emit", "dstream")
    assert (code, out) == (0, "")
    assert Path("out.csv").read_text().splitlines()[1:] == ["11s,3,,http://ex.org/kitchen,2"]


def test_run_with_a_named_graph_and_a_store_on_disk(run: Run) -> None:
    Path("named.rq").write_text(QUERY.replace("?s :in ?room", "GRAPH :g { ?s :in ?room }"))
    code, out, _ = run(
        *("run", "named.rq", "--stream", "<http://ex.org/obs>=obs.nt"),
        *("--graph", "<http://ex.org/g>=rooms.ttl", "--store", "data"),
    )
    assert (code, out) == (0, "4s  :kitchen 2\n")
    assert Path("data").is_dir()


def test_several_queries_are_told_apart(run: Run) -> None:
    Path("all.rq").write_text("REGISTER QUERY all AS SELECT ?s { STREAM <http://ex.org/obs> [NOW] { ?s ?p ?o } }")
    code, out, _ = run(*HOT, "all.rq")
    assert code == 0
    assert out.splitlines()[0].split() == ["all", "0s", "<http://ex.org/s1>"]


@pytest.mark.parametrize("format", ["text", "json", "mermaid"])
def test_explain(run: Run, format: str) -> None:
    code, out, _ = run("explain", "hot.rq", "--format", format)
    assert code == 0
    assert "[RANGE 10s]" in out
    if format == "json":
        assert json.loads(out)["query"]["emit"] == "istream"


def test_explain_says_what_is_computed_anew(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "now.rq"
    path.write_text("SELECT ?s WHERE { STREAM <http://ex.org/obs> [RANGE 5s] { ?s ?p ?o } FILTER(?o < NOW()) }")
    _, out, _ = run("explain", str(path))
    assert "computed anew: an expression that depends on the tick's time" in out


def test_run_shows_what_was_done(run: Run) -> None:
    code, _, err = run(*HOT, "--engine", "embedded", "--analyze")
    assert code == 0
    assert "window: " in err
    assert "orders: " in err
    code, _, err = run(*HOT, "--engine", "reference", "--analyze")
    assert code == 2
    assert "--analyze shows what the incremental engine did" in err


def test_check(run: Run) -> None:
    Path("wrong.rq").write_text("SELECT * { ?s foaf:name ?o }")
    code, out, err = run("check", "hot.rq", "wrong.rq")
    assert code == 2
    assert out == "hot.rq: ok (select, cqels-ql, emits istream)\n"
    assert err.splitlines()[:2] == ["error: prefix foaf: is not declared", "  --> wrong.rq:1:15"]


def test_a_variable_that_is_bound_nowhere(run: Run) -> None:
    text = QUERY.replace("SELECT ?room", "SELECT ?rom", 1)
    assert text != QUERY
    text = text.partition("GROUP BY")[0].replace(" (COUNT(*) AS ?n)", "")
    Path("slip.rq").write_text(text)
    rows = ["--stream", "<http://ex.org/obs>=obs.nt", "--data", "rooms.ttl"]
    for words in (["check", "slip.rq"], ["explain", "slip.rq"], ["run", "slip.rq", *rows]):
        code, _, err = run(*words)
        assert (code, err.splitlines()[0]) == (2, "error: ?rom is selected but no pattern binds it")
        assert "hint: did you mean ?room" in err
        code, out, err = run(*words, "--lenient")
        assert (code, err.splitlines()[0]) == (0, "warning: ?rom is selected but no pattern binds it")
        assert out


def wrong(name: str, text: str | bytes) -> Callable[[], None]:
    def write() -> None:
        Path(name).write_bytes(text.encode() if isinstance(text, str) else text)

    return write


STREAM = ("--stream", "<http://ex.org/obs>=obs.nt")
MISTAKES = {
    "unknown prefix": (wrong("q.rq", "SELECT * { ?s foaf:name ?o }"), ("q.rq",), "prefix foaf: is not declared"),
    "unbound window": (
        wrong("q.rq", "SELECT * { WINDOW <u:v> { ?s ?p ?o } }"),
        ("q.rq",),
        "window <u:v> does not exist",
    ),
    "unknown stream": (
        wrong("q.rq", "SELECT * { STREAM <u:v> { ?s ?p ?o } }"),
        ("q.rq", *STREAM),
        "stream <u:v> is not registered",
    ),
    "wrong duration": (
        wrong("q.rq", "SELECT * { STREAM <u:v> [RANGE 5 parsecs] { ?s ?p ?o } }"),
        ("q.rq",),
        "'parsecs' is not a unit of time",
    ),
    "aggregate out of place": (
        wrong("q.rq", "SELECT * { ?s ?p ?o FILTER(SUM(?o) > 1) }"),
        ("q.rq",),
        "an aggregate cannot stand in a FILTER",
    ),
    "1 MB query": (wrong("q.rq", "SELECT * { " + " " * 1_000_000 + "}"), ("q.rq",), "the text is 1,000,012 characters"),
    "not text": (wrong("q.rq", b"\xff\xfe\x00"), ("q.rq",), "q.rq is not UTF-8 text"),
    "no such file": (lambda: None, ("none.rq",), "none.rq cannot be read"),
    "broken Turtle": (wrong("rooms.ttl", "@prefix : <u:> .\n:s1 :in"), ("hot.rq", *STREAM, "--data", "rooms.ttl"), ""),
    "no timestamp": (wrong("obs.nt", "<u:s> <u:p> <u:o> .\n"), ("hot.rq", *STREAM), "timestamp"),
    "no such stream file": (lambda: None, ("hot.rq", "--stream", "<http://ex.org/obs>=none.nt"), "none.nt"),
    "stream option": (lambda: None, ("hot.rq", "--stream", "<http://ex.org/obs>=obs.nt?speed=3"), "speed"),
    "graph option": (lambda: None, ("hot.rq", *STREAM, "--graph", "nothing"), "not an IRI and a file"),
    "until": (lambda: None, ("hot.rq", *STREAM, "--until", "tomorrow"), "--until"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_with_its_place(run: Run, name: str) -> None:
    write, words, sentence = MISTAKES[name]
    write()
    code, out, err = run("run", *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert sentence in err.splitlines()[0]
    assert "Traceback" not in err
    if name not in ("until", "graph option", "no such file", "not text", "no such stream file"):
        assert "-->" in err


def test_malformed_lines_are_counted_and_told(run: Run) -> None:
    Path("obs.nt").write_text(OBS + "this is no triple\n")
    code, out, err = run(*HOT)
    assert (code, out) == (0, "4s  :kitchen 2\n")
    assert "rejected: obs.nt:4: " in err
    assert "1 rejected" in err
    code, _, err = run(*HOT, "--strict")
    assert code == 2
    assert "obs.nt:4" in err
    code, _, err = run(*HOT, "--rejects", "rejects.tsv")
    assert code == 0
    assert Path("rejects.tsv").read_text().startswith("obs.nt:4\t")


def test_static_data_of_a_format_that_is_given(run: Run) -> None:
    Path("rooms.data").write_text(ROOMS)
    Path("rooms.nt").write_text(ROOMS)
    for data in ("rooms.data", "rooms.nt?format=turtle"):
        code, out, _ = run(*HOT[:-1], data)
        assert (code, out) == (0, "4s  :kitchen 2\n")
    code, _, err = run(*HOT[:-1], "rooms.nt?format=n4")
    assert code == 2
    assert "it is one of turtle, ntriples, nquads, trig, jsonld, rdfxml" in err


@pytest.mark.parametrize("poison", [b'"x\\n\xff" 1', b'"\xff" 1', b'"\\uD800" 1', b'"\x00\xff', b'"" ' + b"9" * 5000])
def test_no_bytes_end_a_run(run: Run, poison: bytes) -> None:
    line = b"<http://ex.org/s1> <http://ex.org/temp> " + poison + b" ."
    Path("obs.nt").write_bytes(line + b"\n" + OBS.encode())
    code, out, err = run(*HOT)
    assert (code, out) == (0, "4s  :kitchen 2\n")
    assert "rejected: obs.nt:1: " in err
    assert "1 rejected" in err
    assert run(*HOT, "--rejects", "rejects.tsv")[0] == 0
    place, reason, text = Path("rejects.tsv").read_text("utf-8").rstrip("\n").split("\t")
    assert place == "obs.nt:1"
    assert reason
    assert text == line.decode("utf-8", "backslashreplace")
    assert run(*HOT, "--strict")[0] == 2


def test_late_elements_are_counted_and_told(run: Run) -> None:
    Path("obs.nt").write_text(OBS + OBS)
    code, _, err = run(*HOT)
    assert code == 0
    assert "2 late" in err


def test_no_output_overwrites_what_is_read_or_another(run: Run) -> None:
    before = Path("obs.nt").read_text()
    for words, message in (
        (("--out", "new.csv", "--rejects", "./new.csv"), "--out and --rejects are one file"),
        (("--out", "obs.nt"), "--out obs.nt would overwrite what is read"),
        (("--rejects", "rooms.ttl"), "--rejects rooms.ttl would overwrite what is read"),
        (("--out", "hot.rq"), "--out hot.rq would overwrite what is read"),
    ):
        code, out, error = run(*HOT, *words)
        assert (code, out) == (2, "")
        assert message in error
    assert Path("obs.nt").read_text() == before
    assert not Path("new.csv").exists()
    assert run(*HOT, "--out", "/dev/null", "--rejects", "/dev/null")[0] == 0


def test_results_of_two_queries_are_not_mixed_in_one_table(run: Run) -> None:
    Path("other.rq").write_text(QUERY)
    code, _, error = run("run", "other.rq", *HOT[1:], "--out", "both.csv")
    assert code == 2
    assert "both.csv is one table, and there are 2 queries" in error
    assert not Path("both.csv").exists()
    assert run("run", "other.rq", *HOT[1:], "--out", "both.jsonl")[0] == 0
    assert {line.split('"')[3] for line in Path("both.jsonl").read_text().splitlines()} == {"hot", "other"}


def test_a_query_may_begin_with_a_byte_order_mark(run: Run) -> None:
    expected = run(*HOT)
    Path("hot.rq").write_text("\ufeff" + QUERY)
    assert run(*HOT) == expected


def test_light_commands_stay_light() -> None:
    """`explain` and `check` answer at once because they load nothing heavy."""
    script = (
        "import sys, cqels.plan.explain, cqels.plan.prepare, cqels.cli\n"
        "query = cqels.plan.prepare.prepare('SELECT ?s { STREAM <u:s> [NOW] { ?s ?p ?o } }')\n"
        "cqels.plan.explain.explain(query)\n"
        "print([name for name in ('llvmlite', 'pyspark', 'pandas', 'numpy', 'pyarrow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    done = subprocess.run(
        [sys.executable, "-c", "import cqels, sys; print('lark' in sys.modules)"], capture_output=True
    )
    assert done.stdout.strip() == b"False"


NOT_HERE = {
    "--analyze": (("--analyze",), "--analyze shows the plan of an engine in this process"),
    "checkpoint": (("--engine", "reference", "--checkpoint", "c"), "--state can be asked for only with --engine"),
    "follow": (("--engine", "reference", "--follow", "--ui"), "--follow, --ui can be asked for only with --engine"),
    "batch": (("--batch", "many"), "--batch: 'many' is not a size"),
    "memory": (("--memory-per-query", "much"), "the budget of a query: 'much' is not a size"),
    "time": (("--engine", "reference", "--time-per-query", "5ms"), "the reference has no budgets for queries"),
    "trigger": (("--trigger", "often"), "--trigger: 'often' is not a duration"),
    "conf": (("--conf", "nothing"), "--conf nothing: this is not a setting"),
    "parquet": (("--engine", "reference", "--format", "parquet"), "Parquet is written to files"),
    "kafka": (("--engine", "reference", "--out", "kafka:a:1"), "does not name a topic"),
    "until": (("--until", "tomorrow"), "--until: "),
    "no file": (("--stream", "<http://ex.org/b>=none.nt"), "none.nt"),
    "stream twice": (("--stream", "<http://ex.org/obs>=obs.nt?idle=1s"), "is declared twice, with another idle"),
}


@pytest.mark.parametrize("name", NOT_HERE)
def test_what_spark_is_asked_for_in_vain_is_told_before_it_starts(run: Run, name: str) -> None:
    pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
    options, sentence = NOT_HERE[name]
    engine = () if "--engine" in options else ("--engine", "spark")
    code, out, err = run(*HOT, *options, *engine)
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[0]


def test_a_query_that_takes_too_much_is_told(run: Run) -> None:
    Path("rooms.rq").write_text("PREFIX : <http://ex.org/> SELECT ?t { STREAM :obs [NOW] { ?s :temp ?t } }")
    code, out, err = run("run", "hot.rq", "rooms.rq", *HOT[2:], "--engine", "embedded", "--memory-per-query", "5kB")
    assert code == 3
    assert {line.split()[0] for line in out.splitlines()} == {"rooms"}
    assert err.splitlines() == [
        "query hot was stopped at element 0: its state takes more than 5 kB",
        "3 elements, 3 results, 1 stopped for taking too much, up to 11s",
    ]


def test_a_wrong_query_is_shown_with_its_place_before_spark_starts(run: Run) -> None:
    pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
    Path("q.rq").write_text("SELECT * { STREAM <u:v> { ?s ?p ?o } }")
    code, _, err = run("run", "q.rq", *STREAM, "--engine", "spark")
    assert code == 2
    assert err.splitlines()[:2] == ["error: stream <u:v> is not declared", "  --> q.rq:1:19"]


def test_without_spark_another_engine_is_offered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from cqels.spark.session import spark_session

    monkeypatch.setattr(spark_session, "missing_parts", lambda: ["pyspark"])
    code, _, err = run(*HOT, "--engine", "spark")
    assert code == 2
    assert "error: Spark is not installed: there is no pyspark" in err
    assert "pip install 'cqels[spark]', or run in this process with --engine embedded" in err


def test_without_streams_there_is_one_tick_here(run: Run) -> None:
    Path("static.rq").write_text("PREFIX : <http://ex.org/> SELECT ?room { :s1 :in ?room }")
    code, out, _ = run("run", "static.rq", "--data", "rooms.ttl", "--engine", "spark")
    assert (code, out) == (0, "0s  :kitchen\n")


def test_a_folder_has_a_file_for_each_query(run: Run) -> None:
    Path("all.rq").write_text("SELECT ?s { STREAM <http://ex.org/obs> [NOW] { ?s ?p ?o } }")
    code, out, _ = run(*HOT, "all.rq", "--out", "results/")
    assert (code, out) == (0, "")
    assert Path("results/all.csv").read_text().splitlines()[0] == "time,tick,sign,s"
    assert Path("results/hot.csv").read_text().splitlines()[1:] == ["4s,2,,http://ex.org/kitchen,2"]


def test_files_of_the_same_name_have_different_results(run: Run) -> None:
    Path("more").mkdir()
    Path("more/hot.rq").write_text(QUERY)
    _, out, _ = run(*HOT, "more/hot.rq")
    assert [each.split()[0] for each in out.splitlines()] == ["hot", "hot-2"]


def test_one_stream_from_several_files_is_merged_by_time(run: Run) -> None:
    """However it is declared: file by file, as a pattern, as a folder."""
    Path("read.rq").write_text("SELECT ?s ?v WHERE { STREAM <http://ex.org/s> [RANGE 3s] { ?s <http://ex.org/v> ?v } }")
    Path("lift.toml").write_text(
        'subject = "http://ex.org/{id}"\n[time]\ncolumn = "t"\n[predicates]\n"http://ex.org/v" = "v"\n'
    )
    Path("parts").mkdir()
    day = "2014-08-01T"
    Path("parts/1.csv").write_text(f"id,t,v\na,{day}00:00:00,1\nb,{day}00:10:00,2\n")
    Path("parts/2.csv").write_text(f"id,t,v\nc,{day}00:00:00,3\nd,{day}00:05:00,4\n")
    Path("parts/3.csv").write_text("id,t,v\n")
    files = [f"<http://ex.org/s>=parts/{name}?template=lift.toml" for name in ("1.csv", "2.csv", "3.csv", "*.csv", "")]
    expected = "".join(
        f'{day}{time}Z  <http://ex.org/{name}> "{value}"\n'
        for name, time, value in (
            ("a", "00:00:00", 1),
            ("c", "00:00:00", 3),
            ("d", "00:05:00", 4),
            ("b", "00:10:00", 2),
        )
    )
    for streams in (files[:3], files[3:4], files[4:]):
        code, out, err = run("run", "read.rq", *(word for each in streams for word in ("--stream", each)))
        assert (code, out) == (0, expected)
        assert err == f"4 elements, 4 results, up to {day}00:10:00Z\n"
    code, _, err = run("run", "read.rq", "--stream", files[0], "--stream", f"{files[1]}&lateness=2s")
    assert code == 2
    assert "stream <http://ex.org/s> is declared twice, with another lateness" in err


def test_a_file_may_be_far_in_the_future_unless_it_is_said(run: Run) -> None:
    Path("far.nt").write_text(
        "".join(f'<x:{name}> <x:p> <x:o> "{year}-01-01T00:00:00Z"^^<{XSD}dateTime> .\n' for name, year in FAR)
    )
    Path("read.rq").write_text("SELECT ?s WHERE { STREAM <http://ex.org/s> [NOW] { ?s ?p ?o } }")
    _, out, err = run("run", "read.rq", "--stream", "<http://ex.org/s>=far.nt")
    assert len(out.splitlines()) == 2
    assert "1 late" in err
    code, out, err = run("run", "read.rq", "--stream", "<http://ex.org/s>=far.nt?future=1d")
    assert (code, len(out.splitlines())) == (0, 2)
    assert "the time 2200-01-01T00:00:00Z is more than 1d beyond the wall clock" in err
    assert "1 rejected" in err
    assert "late" not in err


FAR = (("a", 2014), ("b", 2200), ("c", 2015))


def test_the_reference_refuses_more_boundaries_than_it_can_work_off(run: Run) -> None:
    Path("slow.rq").write_text(
        "PREFIX : <http://ex.org/> SELECT ?s WHERE { STREAM :obs [RANGE 10s SLIDE 1ns] { ?s :temp ?t } }"
    )
    code, _, errors = run("run", "slow.rq", "--stream", "<http://ex.org/obs>=obs.nt", "--engine", "reference")
    assert code == 2
    assert "closes 4,000,000,000 times at once" in errors


def test_a_file_whose_format_is_not_known_is_refused(run: Run) -> None:
    code, out, told = run(*HOT, "--out", "hot.ttl")
    assert (code, out) == (2, "")
    assert "hot.ttl: there is no format for results in .ttl files" in told
    assert run(*HOT, "--out", "hot.ttl", "--format", "csv")[0] == 0
    assert run(*HOT, "--out", "hot")[0] == 0


def test_results_go_to_parquet_parts_and_a_webhook_in_this_process(run: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'cqels[arrow]'")
    pytest.importorskip("httpx", reason="pip install 'cqels[http]'")
    posted: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(404 if "gone" in self.path else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        out = ("--out", "a.parquet", "--out", "parts/?parts", "--out", f"{url}/in", "--out", f"{url}/gone")
        code, shown, told = run(*HOT, "--emit", "changes", *out, "--rejects", "rejects")
        server.shutdown()
    assert (code, shown) == (0, "")
    assert f" {url}/in: each result arrives at least once" in told
    assert parquet.read_table("a.parquet")["n"].to_pylist() == ["2", "2"]
    assert len([*Path("parts/hot").glob("part-*.csv")]) == 1
    assert [each["id"] for each in json.loads(posted[0])] == ["hot/0", "hot/1"]
    assert Path("rejects").read_text().count("the webhook answers 404") == 2
