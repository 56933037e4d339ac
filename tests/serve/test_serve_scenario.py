"""One scenario through the service, over every way in and out: the same rows everywhere, and those of the reference."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from cqels.client.remote_result import result_of
from cqels.ingest import parse_declaration
from cqels.model.terms import CQ
from cqels.plan.prepare import prepare
from cqels.reference.reference_replay import replay
from cqels.store.dataset import Store
from cqels.store.script import execute

from ..live.mqtt_broker import MOSQUITTO, MqttBroker
from ..live.servers import eventually
from ..live.test_every_way import Rows, row
from .serving import PATIENCE, ClientReader, EventReader, serve_process

EX = "http://ex.org/"
LAST = 90
"""Seconds up to which each stream promises to have sent all."""
COUNT = 24
"""Readings of each stream."""
READ = ("file", "mqtt") if MOSQUITTO is not None else ("file",)
"""Streams that the service reads from elsewhere: they are in the pipeline file."""
PUSHED = ("batches", "single", "records", "csv", "jsonld", "trig", "socket")
STREAMS = (*READ, *PUSHED)
DECLARED = "csv"
"""The stream that is declared over HTTP; the others that are pushed to are in the pipeline file."""
TEMPLATE = f"""subject = "{EX}s{{s}}"
[time]
column = "at"
[predicates]
"{EX}temp" = {{ column = "t", datatype = "http://www.w3.org/2001/XMLSchema#integer" }}
"""
ROOMS = [f"<{EX}s{number}> <{EX}in> <{EX}room{number % 2}> ." for number in range(4)]
PREFIX = f"PREFIX : <{EX}>"
_ANY = " UNION ".join(f"{{ STREAM :{name} [RANGE 20s] {{ ?s :temp ?t }} }}" for name in STREAMS if name != DECLARED)
IN_THE_FILE = {
    "rooms": f"SELECT ?room (COUNT(*) AS ?n) (MAX(?t) AS ?most) WHERE {{ {_ANY} ?s :in ?room }} GROUP BY ?room",
    "silent": """SELECT ?s WHERE { STREAM :file [RANGE 30s] { ?s :temp ?t }
        FILTER NOT EXISTS { STREAM :batches [RANGE 10s] { ?s :temp ?u } } }""",
}
REGISTERED = {
    "pairs": """SELECT ?s ?room ?a ?b WHERE { STREAM :csv [RANGE 12s] { ?s :temp ?a }
        STREAM :socket [RANGE 15s] { ?s :temp ?b } ?s :in ?room FILTER(?a > ?b) }""",
    "slide": """SELECT ?s (COUNT(*) AS ?n) (AVG(?t) AS ?mean) WHERE {
        { STREAM :records [RANGE 20s SLIDE 10s] { ?s :temp ?t } } UNION
        { STREAM :trig [RANGE 20s SLIDE 10s] { ?s :temp ?t } } } GROUP BY ?s""",
    "maybe": """SELECT ?s ?t ?u WHERE { STREAM :single [RANGE 10s] { ?s :temp ?t }
        OPTIONAL { STREAM :jsonld [RANGE 10s] { ?s :temp ?u } FILTER(?u > ?t) } }""",
}
QUERIES = IN_THE_FILE | REGISTERED


# ---------------------------------------------------------------- the elements, and what must come of them

Reading = tuple[int, int, int]
"""A sensor, what it measured, and the millisecond."""


def readings(name: str) -> list[Reading]:
    """Those of a stream, in the order of time; no two of all streams have the same."""
    draw, number = Random(name), STREAMS.index(name)
    times = sorted(draw.sample(range(LAST * 100), COUNT))
    return [(draw.randrange(4), draw.randrange(15, 40), 10 * time + number) for time in times]


def line_of(reading: Reading) -> str:
    sensor, degrees, time = reading
    return f'<{EX}s{sensor}> <{EX}temp> {degrees} "{time}" .'


def promise(name: str) -> str:
    return f'<{EX}{name}> <{CQ}noElementBefore> {LAST * 1000} "{LAST * 1000}" .'


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What the reference computes of the same elements in files."""
    folder = tmp_path_factory.mktemp("reference")
    declared = []
    for name in STREAMS:
        (folder / f"{name}.nt").write_text("\n".join([*map(line_of, readings(name)), promise(name)]) + "\n")
        declared.append(parse_declaration(f"<{EX}{name}>={folder}/{name}.nt?idle=1h"))
    store = Store()
    execute(store, f"INSERT DATA {{ {' '.join(ROOMS)} }}")
    queries = [prepare(f"{PREFIX} {text}", name=name, emit="changes") for name, text in QUERIES.items()]
    rows: Rows = {name: [] for name in QUERIES}
    for query, result in replay(queries, declared, store):
        rows[query.name or ""].append(row(result))
    assert all(len(each) > 10 for each in rows.values())
    assert any(values[-1] is None for values in rows["maybe"])
    return rows


# ---------------------------------------------------------------- ways in


def pushing(client: httpx.Client, url: str) -> dict[str, Callable[[list[Reading]], None]]:
    """How the readings of each stream are pushed."""

    def post(name: str, content: Any, media: str, count: int, **params: str) -> None:
        answer = client.post(f"/streams/{name}", content=content, params=params, headers={"Content-Type": media})
        assert (answer.status_code, answer.text) == (200, f'{{"accepted":{count},"rejected":0}}')

    def batches(found: list[Reading]) -> None:
        for at in range(0, COUNT, 7):
            part = found[at : at + 7]
            post("batches", "\n".join(map(line_of, part)).encode(), "application/n-triples", len(part))

    def single(found: list[Reading]) -> None:
        for sensor, degrees, time in found:
            text = f"@prefix : <{EX}> . :s{sensor} :temp {degrees} ."
            post("single", text.encode(), "text/turtle", 1, time=moment(time))

    def records(found: list[Reading]) -> None:
        lines = "".join(json.dumps({"s": s, "t": t, "at": at}) + "\n" for s, t, at in found).encode()
        pieces = [lines[at : at + 37] for at in range(0, len(lines), 37)]
        post("records", iter(pieces), "application/x-ndjson", COUNT)

    def csv(found: list[Reading]) -> None:
        text = "at,s,t\n" + "".join(f"{at},{s},{t}\n" for s, t, at in found)
        post("csv", text.encode(), "text/csv; charset=utf-8", COUNT)

    def jsonld(found: list[Reading]) -> None:
        graphs = [
            {
                "@id": f"{EX}g{time}",
                "http://www.w3.org/ns/prov#generatedAtTime": {
                    "@value": moment(time),
                    "@type": "http://www.w3.org/2001/XMLSchema#dateTime",
                },
                "@graph": [{"@id": f"{EX}s{sensor}", f"{EX}temp": degrees}],
            }
            for sensor, degrees, time in found
        ]
        post("jsonld", json.dumps(graphs).encode(), "application/ld+json", COUNT)

    def trig(found: list[Reading]) -> None:
        prefixes = (
            f"@prefix : <{EX}> . @prefix prov: <http://www.w3.org/ns/prov#> . "
            "@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .\n"
        )
        graphs = "".join(
            f":g{time} {{ :s{sensor} :temp {degrees} }}\n"
            f':g{time} prov:generatedAtTime "{moment(time)}"^^xsd:dateTime .\n'
            for sensor, degrees, time in found
        )
        post("trig", f"{prefixes}{graphs}".encode(), "application/trig", COUNT)

    def socket(found: list[Reading]) -> None:
        with connect(f"{url.replace('http', 'ws')}/streams/socket") as opened:
            for reading in found:
                opened.send(line_of(reading))
            for _ in found:
                assert json.loads(opened.recv(timeout=PATIENCE)) == {"accepted": 1}

    ways = (batches, single, records, csv, jsonld, trig, socket)
    return {way.__name__: way for way in ways}


def moment(milliseconds: int) -> str:
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def publish(port: int, lines: list[str]) -> None:
    import paho.mqtt.client as mqtt

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for line in lines:
        client.publish("readings", line, qos=1).wait_for_publish(10)
    client.loop_stop()
    client.disconnect()


# ---------------------------------------------------------------- ways out


def lines_streamed(client: httpx.Client, name: str, count: int) -> list[str]:
    """As NDJSON, while they come."""
    params, headers = {"from": "start", "limit": f"{count}"}, {"Accept": "application/x-ndjson"}
    with client.stream("GET", f"/queries/{name}/results", params=params, headers=headers) as answer:
        return [line for line in answer.iter_lines() if line]


def lines_polled(client: httpx.Client, name: str, count: int) -> list[str]:
    """By long polling, some at a time."""
    found: list[str] = []
    begin: dict[str, str] = {"from": "start"}
    while len(found) < count:
        params = {**begin, "limit": "7", "wait": "20s"}
        answer = client.get(f"/queries/{name}/results", params=params, headers={"Accept": "application/json"})
        found += [json.dumps(each, ensure_ascii=False) for each in answer.json()["results"]]
        begin = {"after": answer.headers["Cqels-Last-Id"]}
    return found


def lines_of_a_socket(url: str, name: str, count: int) -> list[str]:
    with connect(f"{url.replace('http', 'ws')}/queries/{name}/results?from=start") as socket:
        return [str(socket.recv(timeout=PATIENCE)) for _ in range(count)]


class Ways:
    """All who read results of all queries, from before the first comes."""

    def __init__(self, url: str, counts: dict[str, int]) -> None:
        self._counts = counts
        self.events = {name: EventReader(url, name) for name in counts}
        self.clients = {name: ClientReader(url, name) for name in counts}
        self.lines: dict[tuple[str, str], list[str]] = {}
        self._http = httpx.Client(base_url=url, timeout=PATIENCE)
        self._threads = [
            Thread(target=self._read, args=(way, name, read), daemon=True)
            for name in counts
            for way, read in {
                "ndjson": lambda name, count: lines_streamed(self._http, name, count),
                "polled": lambda name, count: lines_polled(self._http, name, count),
                "socket": lambda name, count: lines_of_a_socket(url, name, count),
            }.items()
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, way: str, name: str, read: Callable[[str, int], list[str]]) -> None:
        self.lines[way, name] = read(name, self._counts[name])

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
        for name, count in self._counts.items():
            eventually(lambda name=name, count=count: len(self.events[name].lines) >= count, PATIENCE)  # type: ignore[misc]
            self.events[name].join()
            assert self.events[name].faults == []
            self.lines["events", name] = self.events[name].lines
            eventually(lambda name=name, count=count: len(self.clients[name].results) >= count, PATIENCE)  # type: ignore[misc]
            self.clients[name].join()
            assert self.clients[name].fault is None
        self._http.close()


# ---------------------------------------------------------------- the scenario

PIPELINE = """
[prefixes]
"" = "http://ex.org/"

[serve]
base = "http://ex.org/"

[[streams]]
iri = ":file"
from = "readings.nt"
idle = "1h"
"""
MQTT = """
[[streams]]
iri = ":mqtt"
from = "mqtt://127.0.0.1:{port}/readings"
idle = "1h"
"""


def written(folder: Path, port: int | None, queries: dict[str, str]) -> Path:
    """The pipeline file: streams that are read, some that are pushed to, queries, and a sink."""
    text = PIPELINE + ("" if port is None else MQTT.format(port=port))
    for name in PUSHED:
        if name != DECLARED:
            template = f'template = """\n{TEMPLATE}"""\n' if name == "records" else ""
            text += f'\n[[serve.streams]]\nname = "{name}"\nidle = "1h"\n{template}'
    for name, query in queries.items():
        text += f'\n[[queries]]\nname = "{name}"\nemit = "changes"\ntext = """{PREFIX} {query}"""\n'
    text += '\n[[sinks]]\nto = "results/"\nformat = "jsonl"\n'
    path = folder / "pipeline.toml"
    path.write_text(text)
    (folder / "readings.nt").write_text("")
    return path


@pytest.fixture(params=["embedded", pytest.param("spark", marks=pytest.mark.chaos)])
def engine(request: pytest.FixtureRequest) -> list[str]:
    """The options that choose an engine; a service that starts Spark takes too long for each day."""
    if request.param == "embedded":
        return ["--engine", "embedded"]
    pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
    if importlib.util.find_spec("cqels.cli.serve_spark") is None:
        pytest.skip("the service runs on Spark in a later release")
    return ["--engine", "spark", "--master", "local[2]", "--instances", "1"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[MqttBroker, Path] | None]:
    if MOSQUITTO is None:
        yield None
        return
    folder = tmp_path / "broker"
    folder.mkdir()
    log = folder / "log"
    with MqttBroker(folder, f"allow_anonymous true\nlog_type subscribe\nlog_dest file {log}\n") as made:
        yield made, log


def declare(client: httpx.Client, queries: dict[str, str]) -> None:
    """What the pipeline file does not say."""
    words = {"idle": "1h", "template": TEMPLATE}
    assert client.put(f"/streams/{DECLARED}", json=words).status_code == 201
    for name, text in queries.items():
        answer = client.put(f"/queries/{name}", params={"emit": "changes"}, content=f"{PREFIX} {text}")
        assert answer.status_code == 201, answer.text
        assert answer.json()["declared"] == []


def give_data(client: httpx.Client) -> None:
    """The static data, by each way to change it, when the queries run."""
    data, turtle = "/data?default", {"Content-Type": "text/turtle"}
    wrong = f"<{EX}s3> <{EX}in> <{EX}nowhere> ."
    assert client.put(data, content=wrong, headers=turtle).status_code in (201, 204)
    assert client.put(data, content=ROOMS[0], headers=turtle).status_code == 204
    assert client.post(data, content=ROOMS[1], headers=turtle).status_code == 204
    assert client.post("/sparql", data={"update": f"INSERT DATA {{ {ROOMS[2]} {ROOMS[3]} }}"}).status_code == 204


def test_the_scenario(tmp_path: Path, expected: Rows, engine: list[str], broker: Any) -> None:
    in_the_file, registered = IN_THE_FILE, REGISTERED
    if "spark" in engine:  # where queries of the file read the streams of the file
        in_the_file, registered = {}, QUERIES
    file = written(tmp_path, None if broker is None else broker[0].port, in_the_file)
    counts = {name: len(rows) for name, rows in expected.items()}
    with serve_process(tmp_path, str(file), *engine) as service, service.client() as client:
        declare(client, registered)
        give_data(client)
        ways = Ways(service.url, counts)
        with (tmp_path / "readings.nt").open("a") as stream:
            stream.writelines(f"{line}\n" for line in [*map(line_of, readings("file")), promise("file")])
        if broker is not None:
            eventually(lambda: "readings" in broker[1].read_text(), PATIENCE)
            publish(broker[0].port, [*map(line_of, readings("mqtt")), promise("mqtt")])
        pushes = pushing(client, service.url)
        senders = [Thread(target=push, args=[readings(name)], daemon=True) for name, push in pushes.items()]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(PATIENCE)
        for name in PUSHED:
            assert client.post(f"/streams/{name}", content=promise(name)).json()["accepted"] == 1
        ways.join()
        status = client.get("/").json()
        assert (status["rejected"], status["late"]) == (0, 0)
        variables = {name: tuple(client.get(f"/queries/{name}").json()["variables"]) for name in QUERIES}
        ends = {name: client.get(f"/queries/{name}").json()["results"] for name in QUERIES}
    assert ends == counts
    for (way, name), lines in ways.lines.items():
        found = [json.loads(line) for line in lines]
        assert [each["id"] for each in found] == [f"{name}/{number}" for number in range(counts[name])], (way, name)
        assert [row(result_of(each, variables[name])) for each in found] == expected[name], (way, name)
    for name, client_reader in ways.clients.items():
        assert [*map(row, client_reader.results)] == expected[name], name
    check_files(tmp_path / "results", expected, variables)


def check_files(folder: Path, expected: Rows, variables: dict[str, tuple[str, ...]]) -> None:
    """The file sink has the same."""
    written = {path.stem: path.read_text().splitlines() for path in folder.glob("*.jsonl")}
    assert len(written) == len(expected)
    for name, rows in expected.items():
        lines = next(found for stem, found in written.items() if stem.endswith(name))
        records = [json.loads(line) | {"id": f"{name}/{number}"} for number, line in enumerate(lines)]
        assert [row(result_of(each, variables[name])) for each in records] == rows, name


WATCH = f"""{PREFIX} SELECT ?s WHERE {{ ?s :watched true
    FILTER NOT EXISTS {{ STREAM :pings [RANGE 1s] {{ ?s :ping ?any }} }} }}"""


def test_a_silent_stream_and_data_that_change(tmp_path: Path, engine: list[str]) -> None:
    """Absence is reported by the clock, and changes of the data reach the query that runs."""
    with serve_process(tmp_path, *engine, "--base", EX, "--tick", "100ms") as service, service.client() as client:
        assert client.put("/streams/pings", json={"clock": "arrival"}).status_code == 201
        data, turtle = "/data?default", {"Content-Type": "text/turtle"}
        client.put(data, content=f"<{EX}a> <{EX}watched> true .", headers=turtle)
        assert client.put("/queries/absent", params={"emit": "changes"}, content=WATCH).status_code == 201
        reader = EventReader(service.url, "absent")
        changes: list[tuple[str, str]] = []

        def came(*wanted: tuple[str, str]) -> None:
            changes.extend(wanted)
            eventually(lambda: len(reader.lines) >= len(changes), PATIENCE)
            found = [(each["sign"], each["bindings"]["s"]["value"].removeprefix(EX)) for each in reader.records()]
            assert found == changes

        ping(client, "a")
        came(("+", "a"))
        ping(client, "a")
        came(("-", "a"), ("+", "a"))
        client.post("/sparql", data={"update": f"INSERT DATA {{ <{EX}b> <{EX}watched> true }}"})
        came(("+", "b"))
        client.put(data, content=f"<{EX}b> <{EX}watched> true .", headers=turtle)
        came(("-", "a"))
        reader.join()
        assert reader.faults == []


def ping(client: httpx.Client, name: str) -> None:
    answer = client.post("/streams/pings", content=f"<{EX}{name}> <{EX}ping> 1 .")
    assert answer.json() == {"accepted": 1, "rejected": 0}
