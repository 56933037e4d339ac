"""The files of deploy/, as far as this machine has what reads them: images are not built here, all else is tried.

The options that they name are those of `cqels serve`, the metrics of the dashboard and of the alerts are those of a
service, and a copy of a state is restored.  nginx, Prometheus, mosquitto and systemd are used where they are installed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import connect

from cqels.cli.app import app
from cqels.live.live_run import LiveSettings
from cqels.serve.access import VARIABLE, Access
from cqels.serve.backend import Pipeline
from cqels.serve.guard import Limits
from cqels.serve.http_app import HttpSettings
from cqels.serve.server import Address, Server
from cqels.serve.service import Service, ServiceSettings
from cqels.store.dataset import Store

from ..live.mqtt_broker import MOSQUITTO, MqttBroker

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
TOKEN = "0123456789-of-somebody"
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { STREAM <obs> [RANGE 1h] { ?s <http://ex.org/v> ?v } }"
TURTLE = {"Content-Type": "text/turtle"}


def eventually(check: Callable[[], object], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < limit, "it has not happened"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(state: Path, http: HttpSettings | None = None, **address: Any) -> Iterator[Server]:
    """A service in this process."""
    pipeline = Pipeline(store=Store(), settings=LiveSettings(lasting=True))
    service = Service(pipeline, state, ServiceSettings(memory=64 << 30))
    with Server(service, Address(port=0, **address), http) as server:
        yield server


class Started:
    """`cqels serve` in a process of its own."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.errors = folder / f"errors-{time.monotonic_ns()}.txt"
        command = [sys.executable, "-c", "from cqels.cli import main; main()", "serve", "--port", "0", *arguments]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(command, cwd=folder, stderr=errors, env=os.environ | environment)
        eventually(lambda: "end  " in self.errors.read_text() or self.process.poll() is not None)
        found = re.search(r"http://127\.0\.0\.1:\d+", self.errors.read_text())
        assert found is not None, self.errors.read_text()
        self.url = found[0]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.errors.read_text()

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *fault: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


# ---------------------------------------------------------------- options and paths


def options() -> set[str]:
    """Those of `cqels serve`."""
    command = typer.main.get_command(app)
    (found,) = [each for name, each in command.commands.items() if name == "serve"]  # type: ignore[attr-defined]
    return {name for each in found.params for name in each.opts if name.startswith("--")}


def named(words: Sequence[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def instructions() -> dict[str, list[str]]:
    """The last stage of the Dockerfile, by the names of instructions."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found = {}
        if name and not name.startswith("#"):
            found.setdefault(name, []).append(rest)
    return found


def test_what_the_image_is_built_from_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY ([^-\n].*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    for name in copied:
        assert (ROOT / name).exists(), name
        assert name in kept, name
    extras = re.search(r"/source\[(.*?)\]", text)
    assert extras is not None
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras[1].split(","))


def test_the_image() -> None:
    found = instructions()
    assert found["FROM"] == ["python:3.11-slim"]
    assert found["USER"] == ["cqels"]
    assert json.loads(found["ENTRYPOINT"][0]) == ["cqels", "serve"]
    command = json.loads(found["CMD"][0])
    assert named(command) <= options()
    state = command[command.index("--state") + 1]
    assert state.startswith(found["VOLUME"][0])
    assert found["EXPOSE"] == ["7070"]


def test_the_health_check_of_the_image(tmp_path: Path) -> None:
    _, _, words = instructions()["HEALTHCHECK"][0].partition("CMD ")
    command = json.loads(words)
    with served(tmp_path / "state", HttpSettings(access=Access(((TOKEN.encode(), frozenset({"read"})),)))) as server:
        script = command[2].replace("7070", str(server.port))
        assert script != command[2]
        assert subprocess.run([sys.executable, "-c", script], timeout=20).returncode == 0
    assert subprocess.run([sys.executable, "-c", script], timeout=20, stderr=subprocess.DEVNULL).returncode != 0


def test_compose() -> None:
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = found["services"]
    assert set(services) == {"cqels", "broker", "prometheus", "grafana"}
    for service in services.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in found["volumes"], mount
        assert set(service.get("secrets", ())) <= set(found["secrets"])
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    ours = services["cqels"]
    assert (DEPLOY / ours["build"]["context"] / ours["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert named(ours["command"]) <= options()
    assert VARIABLE in ours["environment"]
    pipeline = (DEPLOY / "pipeline" / "pipeline.toml").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", pipeline)) <= set(ours["environment"])
    mounted = services["grafana"]["volumes"]
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/cqels.yaml").read_text())["providers"][0]
    assert any(mount.split(":")[1].startswith(provider["options"]["path"]) for mount in mounted)


# ---------------------------------------------------------------- metrics


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all that a service shows Prometheus."""
    with served(tmp_path_factory.mktemp("shown") / "state") as server, httpx.Client(base_url=server.url) as client:
        client.put("/queries/n", content=COUNT)
        client.post("/streams/obs", content="<http://ex.org/s> <http://ex.org/v> 1 .", headers=TURTLE)
        eventually(lambda: "cqels_stream_read_total{" in client.get("/metrics").text)
        families = list(text_string_to_metric_families(client.get("/metrics").text))
    names = set()
    for family in families:
        match family.type:
            case "counter":
                names.add(f"{family.name}_total")
            case "histogram":
                names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
            case _:
                names.add(family.name)
    return names


def expressions() -> list[str]:
    """Those of the dashboard and of the alerts."""
    dashboard = json.loads((DEPLOY / "grafana" / "cqels.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    alerts = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    return found + [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]


def test_metrics_of_the_dashboard_and_the_alerts_exist(shown: set[str]) -> None:
    named = {name for each in expressions() for name in re.findall(r"\b(?:cqels|process)_\w+", each)}
    assert len(named) > 30
    assert named <= shown, named - shown


def test_the_dashboard_shows_every_metric_of_streams_and_queries(shown: set[str]) -> None:
    text = " ".join(expressions())
    of_parts = {name for name in shown if re.match(r"cqels_(stream|query)_", name)}
    assert {name for name in of_parts if name not in text} == set()


def test_the_dashboard_fits_grafana() -> None:
    found = json.loads((DEPLOY / "grafana" / "cqels.json").read_text())
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"][0]
    panels = found["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    variables = {each["name"] for each in found["templating"]["list"]}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == source["uid"]
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables | {"__rate_interval"}
    places = [panel["gridPos"] for panel in panels]
    cells = [(p["x"] + x, p["y"] + y) for p in places for x in range(p["w"]) for y in range(p["h"])]
    assert len(cells) == len(set(cells)), "panels lie over each other"


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_prometheus_reads_all_of_it(tmp_path: Path) -> None:
    token, port = tmp_path / "token", free_port()
    token.write_text(TOKEN)
    access = Access(((TOKEN.encode(), frozenset({"read"})),))
    with served(tmp_path / "state", HttpSettings(access=access)) as server:
        config = (DEPLOY / "prometheus.yml").read_text()
        for old, new in (
            ("/run/secrets/metrics-token", str(token)),
            ("cqels:7070", f"127.0.0.1:{server.port}"),
            ("scrape_interval: 5s", "scrape_interval: 200ms"),
        ):
            assert old in config
            config = config.replace(old, new)
        (tmp_path / "prometheus.yml").write_text(config)
        shutil.copy(DEPLOY / "alerts.yml", tmp_path)
        if (promtool := shutil.which("promtool")) is not None:
            check = [promtool, "check", "config", "prometheus.yml"]
            subprocess.run(check, cwd=tmp_path, check=True, capture_output=True)
            metrics = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).content
            done = subprocess.run([promtool, "check", "metrics"], input=metrics, capture_output=True)
            assert (done.returncode, done.stderr + done.stdout) == (0, b"")
        command = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
        command.append(f"--storage.tsdb.path={tmp_path / 'tsdb'}")
        running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=5) as client:

                def asked(text: str) -> dict[str, Any]:
                    try:
                        found: dict[str, Any] = client.get("/query", params={"query": text}).json()
                    except (httpx.TransportError, ValueError):  # it begins
                        return {"status": "error", "data": {"result": []}}
                    return found

                eventually(lambda: asked("cqels_ready == 1")["data"]["result"])
                for each in expressions():
                    text = each.replace("$__rate_interval", "10s").replace("$instance", f"127.0.0.1:{server.port}")
                    assert asked(text.replace("$query", ".*"))["status"] == "success", each
        finally:
            running.terminate()
            running.wait(20)


# ---------------------------------------------------------------- systemd, proxies


def test_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "cqels.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words = shlex.split(command)
    assert words[1] == "serve"
    assert named(words) <= options()
    assert "\nMemoryDenyWriteExecute=yes" not in text, "kernels are compiled while it runs"
    assert "\nLimitAS=" not in text, "an engine reserves address space"
    if (verify := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "cqels.service"
    unit.write_text(text.replace(words[0], sys.executable))
    done = subprocess.run([verify, "verify", str(unit)], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if "cqels.service" in line] == []


@contextmanager
def behind_nginx(folder: Path, service: Server) -> Iterator[int]:
    """nginx with our file, before a service, on a port of this machine, with a certificate of its own."""
    assert NGINX is not None
    port = free_port()
    subject = ["-subj", "/CN=cqels.example.org", "-addext", "subjectAltName=DNS:cqels.example.org"]
    made = shlex.split("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2")
    files = ["-keyout", str(folder / "cqels.key"), "-out", str(folder / "cqels.pem")]
    subprocess.run([*made, *subject, *files], check=True, capture_output=True)
    text = (DEPLOY / "nginx.conf").read_text()
    for old, new in (
        ("127.0.0.1:7070", f"127.0.0.1:{service.port}"),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/nginx/cqels", f"{folder}/cqels"),
    ):
        assert old in text
        text = text.replace(old, new)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/errors; worker_processes 1;\n"
        f"events {{}}\nhttp {{ access_log off;\n{temporary}{text}}}\n"
    )
    subprocess.run([NGINX, "-t", "-q", "-p", str(folder), "-c", str(config)], check=True)
    running = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(config)])
    try:
        eventually(lambda: _answers(port))
        yield port
    finally:
        running.terminate()
        running.wait(20)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="nginx or openssl is not installed")
def test_behind_nginx(tmp_path: Path) -> None:
    name = "cqels.example.org"
    http = HttpSettings(limits=Limits(hosts=("localhost", "127.0.0.1", name), requests=None))
    with served(tmp_path / "state", http, forwarded="127.0.0.1") as server, behind_nginx(tmp_path, server) as port:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cqels.pem"))
        transport = httpx.HTTPTransport(verify=trusted)
        extensions = {"sni_hostname": name}
        base = f"https://127.0.0.1:{port}"
        with httpx.Client(base_url=base, transport=transport, headers={"Host": name}, timeout=10) as client:

            def push(number: int) -> httpx.Response:
                line = f"<http://ex.org/s{number}> <http://ex.org/v> {number} ."
                return client.post("/streams/obs", content=line, headers=TURTLE, extensions=extensions)

            assert client.put("/queries/n", content=COUNT, extensions=extensions).status_code == 201
            accept = {"Accept": "text/event-stream"}
            with client.stream("GET", "/queries/n/results", headers=accept, extensions=extensions) as answer:
                lines = answer.iter_lines()
                assert next(lines).startswith("retry")  # at once, though nothing has come
                for number in range(3):
                    assert push(number).json()["accepted"] == 1
                    data = next(line for line in lines if line.startswith("data: "))  # each as it comes
                    assert json.loads(data[6:])["bindings"]["n"]["value"] == str(number + 1)
            address = f"wss://{name}/queries/n/results?after=0"
            with (
                socket.create_connection(("127.0.0.1", port)) as plain,
                connect(address, sock=plain, ssl=trusted) as reader,
            ):
                assert json.loads(reader.recv(timeout=10))["bindings"]["n"]["value"] == "2"
            too_much = b"x" * ((64 << 20) + 1)
            assert client.post("/streams/obs", content=too_much, extensions=extensions).status_code == 413
            other = client.get("/", headers={"Host": "other.example.org"}, extensions=extensions)
            assert other.status_code in (400, 403, 421)


# ---------------------------------------------------------------- the pipeline of the compose file


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
def test_the_pipeline_of_the_compose_file(tmp_path: Path) -> None:
    from paho.mqtt import publish

    shutil.copytree(DEPLOY / "pipeline", tmp_path / "pipeline")
    broker = MqttBroker(tmp_path)
    environment = {"BROKER": f"127.0.0.1:{broker.port}"}
    arguments = ["pipeline/pipeline.toml", "--state", str(tmp_path / "state")]
    with broker, Started(tmp_path, *arguments, **environment) as started, httpx.Client(base_url=started.url) as client:

        def measured() -> httpx.Response:
            topic = "building/kitchen/temperature"
            publish.single(topic, '{"t": 31.5}', hostname="127.0.0.1", port=broker.port, qos=1)
            wanted = {"wait": "1s", "from": "start"}
            return client.get("/queries/hot/results", params=wanted, headers={"Accept": "application/json"})

        eventually(lambda: measured().json()["results"])
        first = measured().json()["results"][0]
        assert first["bindings"]["room"]["value"] == "http://localhost:7070/room/kitchen"
        samples = client.get("/metrics").text
        assert re.search(r'^cqels_stream_read_total\{stream="temperatures"\} [1-9]', samples, re.MULTILINE)
        started.stop()


# ---------------------------------------------------------------- backup and restore


def count_of(client: httpx.Client) -> int:
    """How many elements the service has counted."""
    wanted = {"wait": "5s", "from": "start"}
    found = client.get("/queries/n/results", params=wanted, headers={"Accept": "application/json"}, timeout=20)
    results = found.json()["results"]
    assert [int(each["bindings"]["n"]["value"]) for each in results] == [*range(1, len(results) + 1)]
    return len(results)


def restored(copy: Path) -> int:
    """How many elements a service has counted that goes on from a copy of a state."""
    with served(copy) as again, httpx.Client(base_url=again.url) as client:
        found = count_of(client)
        answer = client.post("/streams/obs", content="<http://ex.org/last> <http://ex.org/v> 1 .", headers=TURTLE)
        assert answer.json()["accepted"] == 1
        eventually(lambda: count_of(client) == found + 1)
    return found


def test_a_copy_of_a_frozen_service_is_complete(tmp_path: Path) -> None:
    """As `systemctl freeze`, `docker pause` and a snapshot of the file system do it: all at one moment."""
    copies = []
    with Started(tmp_path, "--state", str(tmp_path / "state")) as started, httpx.Client(base_url=started.url) as client:
        assert client.put("/queries/n", content=COUNT).status_code == 201
        acknowledged, ended = [0], threading.Event()

        def push() -> None:
            with httpx.Client(base_url=started.url, timeout=30) as own:
                while not ended.is_set():
                    line = f"<http://ex.org/s{acknowledged[0]}> <http://ex.org/v> {acknowledged[0]} ."
                    assert own.post("/streams/obs", content=line, headers=TURTLE).json()["accepted"] == 1
                    acknowledged[0] += 1

        pushing = threading.Thread(target=push)
        pushing.start()
        for number in range(2):
            wanted = acknowledged[0] + 30
            eventually(lambda wanted=wanted: acknowledged[0] >= wanted)
            if number:
                assert client.post("/checkpoint").status_code == 200
            started.process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)  # what was acknowledged is known here
            least = acknowledged[0]
            shutil.copytree(tmp_path / "state", tmp_path / f"copy-{number}")
            started.process.send_signal(signal.SIGCONT)
            copies.append((tmp_path / f"copy-{number}", least))
        ended.set()
        pushing.join(30)
        started.stop()
    for copy, least in copies:
        assert least <= restored(copy) <= least + 1  # one may be on the disk and not yet acknowledged


def test_a_copy_of_a_stopped_service_is_complete(tmp_path: Path) -> None:
    with served(tmp_path / "state") as server, httpx.Client(base_url=server.url) as client:
        client.put("/queries/n", content=COUNT)
        change, update = "INSERT DATA { <http://ex.org/s> <http://ex.org/p> 1 }", "application/sparql-update"
        assert client.post("/sparql", content=change, headers={"Content-Type": update}).status_code == 204
        for number in range(20):
            line = f"<http://ex.org/s{number}> <http://ex.org/v> {number} ."
            assert client.post("/streams/obs", content=line, headers=TURTLE).json()["accepted"] == 1
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    shutil.rmtree(tmp_path / "state")
    assert restored(tmp_path / "copy") == 20
    with served(tmp_path / "copy") as again, httpx.Client(base_url=again.url) as client:
        asked = client.get("/sparql", params={"query": "ASK { <http://ex.org/s> <http://ex.org/p> 1 }"})
        assert asked.json()["boolean"] is True
