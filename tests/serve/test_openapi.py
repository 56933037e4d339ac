"""The service against its own description: the same routes, examples that work, and what schemathesis finds.

schemathesis is a process of its own, and is loaded there alone: `pip install schemathesis`, or the tests are left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from cqels.live.live_run import LiveSettings
from cqels.serve.access import Access, Right
from cqels.serve.backend import Pipeline
from cqels.serve.http_app import HttpSettings, Routes, _table
from cqels.serve.openapi import OPERATIONS, Operation, description
from cqels.serve.openapi_schemas import SCHEMAS
from cqels.serve.problems import MEDIA_TYPE
from cqels.serve.push_formats import MEDIA_TYPES
from cqels.serve.served_stream import ServedStream
from cqels.serve.server import Address, Server
from cqels.serve.service import Service
from cqels.store.dataset import Store

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "http.md"
BASE = "http://localhost:7070/"
MANY = int(os.environ.get("FUZZ_EXAMPLES", "100"))
TOKEN = "admin-0123456789abcdef"
TOKENS = Access(((TOKEN.encode(), frozenset(get_args(Right))),))
TEMPLATE = 'subject = "ex:{id}"\n[prefixes]\nex = "http://ex.org/"\n[predicates]\n"ex:p" = "v"\n'
HOT = "SELECT ?s ?t WHERE { STREAM <obs> [RANGE 10s] { ?s <http://ex.org/temp> ?t } }"
DESCRIPTION = description(BASE)
_numbers = count()


@contextmanager
def _serving(state: Path) -> Iterator[Server]:
    """A service with tokens, a query, and a stream that takes records."""
    service = Service(Pipeline(store=Store(), settings=LiveSettings(lasting=True)), state)
    with Server(service, Address(port=0), HttpSettings(access=TOKENS)) as server:
        service.declare("records", ServedStream(clock="arrival", template=TEMPLATE))
        service.register("hot", HOT)
        yield server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with _serving(tmp_path_factory.mktemp("state")) as server:
        yield server


@pytest.fixture(scope="module")
def http(served: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as client:
        yield client


# ---------------------------------------------------------------- what it describes


def test_it_describes_the_routes(served: Server) -> None:
    """Methods, paths and rights are those of the table."""
    table = {
        (method, path.replace(":path}", "}"), right)
        for method, path, right, _ in _table(Routes(served.service, HttpSettings()))
    }
    assert {(each.method, each.path, each.right) for each in OPERATIONS} == table
    paths = DESCRIPTION["paths"]
    assert {(method, path) for method, path, _ in table} == {
        (method.upper(), path) for path, item in paths.items() for method in item if method != "parameters"
    }


def test_it_describes_the_media_types_of_pushes() -> None:
    (push,) = (each for each in OPERATIONS if each.id == "push")
    assert {*push.body} == {*MEDIA_TYPES} - {""}


def test_names_in_it_are_there() -> None:
    """References, and operations of one name each."""
    text = json.dumps(DESCRIPTION)
    for kind, name in re.findall(r'"#/components/(\w+)/([\w-]+)"', text):
        assert name in DESCRIPTION["components"][kind]
    used = {name for _, name in re.findall(r'"#/components/(\w+)/([\w-]+)"', text)}
    assert {*SCHEMAS} - used == {"Result"} - used
    assert len({each.id for each in OPERATIONS}) == len(OPERATIONS)


def test_everybody_may_read_it(served: Server) -> None:
    found = httpx.get(f"{served.url}/openapi.json")
    assert found.json() == description(BASE)
    assert found.json()["openapi"].startswith("3.1.")


# ---------------------------------------------------------------- what it shows works


def _examples() -> Iterator[tuple[str, Operation, str, Any]]:
    for each in OPERATIONS:
        item = DESCRIPTION["paths"][each.path][each.method.lower()]
        for media, content in item.get("requestBody", {}).get("content", {}).items():
            if "example" in content:
                yield f"{each.id} {media}", each, media, content["example"]
    for example in SCHEMAS["Declaration"]["examples"]:
        (declare,) = (each for each in OPERATIONS if each.id == "declare_stream")
        yield f"declare_stream {sorted(example)}", declare, "application/json", example


@pytest.mark.parametrize(
    ("operation", "media", "example"), [each[1:] for each in _examples()], ids=[each[0] for each in _examples()]
)
def test_examples_of_bodies_are_taken(http: httpx.Client, operation: Operation, media: str, example: Any) -> None:
    name = f"new{next(_numbers)}"
    is_record = media in ("application/x-ndjson", "application/jsonl", "text/csv")
    text = example if isinstance(example, str) else json.dumps(example)
    if operation.id == "push" and is_record:
        http.put(
            f"/streams/{name}",
            json={"template": TEMPLATE.replace("id", "sensor").replace('"v"', '"temp"'), "clock": "arrival"},
        )
    if media == "application/x-www-form-urlencoded" and isinstance(example, dict):
        text = str(httpx.QueryParams(example))
    params = {"default": ""} if operation.path == "/data" else {}
    path = operation.path.replace("{name}", name)
    done = http.request(operation.method, path, params=params, content=text.encode(), headers={"Content-Type": media})
    assert done.status_code in operation.answers, done.text
    if operation.id == "push":
        assert done.json()["rejected"] == 0
        assert done.json()["accepted"] == max(text.count("\n") - (media == "text/csv"), 1)


ERRORS = [
    ("GET", "/queries/hto", {}, 404),
    ("DELETE", "/queries/hto", {}, 404),
    ("GET", "/queries/hot", {"headers": {"Authorization": ""}}, 401),
    ("GET", "/queries/hot", {"headers": {"Authorization": "Bearer x"}}, 401),
    ("GET", "/nothing", {}, 404),
    ("PATCH", "/queries/hot", {}, 405),
    ("PUT", "/queries/hot/results", {"content": HOT}, 405),
    ("DELETE", "/queries/hot/explain", {}, 405),
    ("POST", "/queries", {}, 405),
    ("GET", "/queries/hot/results", {"headers": {"Accept": "image/png"}}, 406),
    ("PUT", "/streams/records", {"json": {}}, 409),
    ("PUT", "/streams/hot", {"json": {}}, 409),
    ("PUT", "/queries/records", {"content": HOT}, 409),
    ("POST", "/streams/hot", {"content": "<a:a> <a:b> 1 ."}, 409),
    ("POST", "/streams/obs", {"content": b"x" * (65 << 20)}, 413),
    ("GET", "/queries", {"params": {"x": "y" * 20_000}}, 414),
    ("POST", "/streams/obs", {"content": "x", "headers": {"Content-Type": "image/png"}}, 415),
    ("POST", "/streams/obs", {"content": "x"}, 400),
    ("POST", "/streams/obs", {"content": "<a:a> <a:b> 1 .", "params": {"time": "noon"}}, 400),
    ("PUT", "/streams/new", {"json": {"clock": "noon"}}, 400),
    ("PUT", "/streams/new", {"content": "[" * 100_000}, 400),
    ("PUT", "/streams/new", {"json": {"time": "noon"}}, 400),
    ("PUT", "/streams/new", {"json": {"template": TEMPLATE}}, 400),
    ("PUT", "/streams/new", {"json": {"template": "x"}}, 400),
    ("GET", "/streams/new", {}, 404),
    ("PUT", "/queries/new", {"content": "SELECT"}, 400),
    ("PUT", "/queries/new", {"content": ""}, 400),
    ("PUT", "/queries/new", {"content": HOT, "params": {"time": ""}}, 400),
    ("PUT", "/queries/new", {"content": HOT, "params": {"emit": "all"}}, 400),
    ("GET", "/queries/hot/explain", {"params": {"format": ""}}, 400),
    ("GET", "/queries/hot/results", {"params": {"after": "-1"}}, 400),
    ("GET", "/queries/hot/results", {"headers": {"Last-Event-ID": "x"}}, 400),
    ("GET", "/data", {"params": {"default": "null"}}, 400),
    ("GET", "/data", {"params": [("default", ""), ("default", "")]}, 400),
]


def test_errors_are_problem_details(http: httpx.Client) -> None:
    for method, path, given, status in ERRORS:
        found = http.request(method, path, **given)
        assert (method, path, found.status_code) == (method, path, status), found.text
        assert found.headers["content-type"] == MEDIA_TYPE
        told = found.json()
        assert told["status"] == status
        assert {*SCHEMAS["Problem"]["required"]} <= {*told} <= {*SCHEMAS["Problem"]["properties"]}
        assert ("www-authenticate" in found.headers) == (status == 401)
        if status == 405:
            assert found.headers["allow"]


def test_another_text_or_other_words_are_another_query(http: httpx.Client) -> None:
    states = [
        http.put("/queries/hot", content=HOT, params=words).json()["state"] for words in ({}, {"emit": "rstream"}, {})
    ]
    assert states == ["kept", "anew", "anew"]


# ---------------------------------------------------------------- schemathesis


@pytest.mark.skipif(find_spec("schemathesis") is None, reason="pip install schemathesis")
def test_a_few_requests_of_each_kind(tmp_path: Path) -> None:
    _run(tmp_path, 1, "fuzzing")


@pytest.mark.fuzz
@pytest.mark.skipif(find_spec("schemathesis") is None, reason="pip install schemathesis")
def test_many_requests(tmp_path: Path) -> None:
    _run(tmp_path, MANY, "coverage,fuzzing,stateful")


def _run(folder: Path, examples: int, phases: str) -> None:
    """All checks of schemathesis, which is told what it cannot know by `openapi_hooks.py`."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", "--checks", "all", "--phases", phases]
    command += ["--header", f"Authorization: Bearer {TOKEN}", "--max-examples", f"{examples}"]
    command += ["--request-timeout", "20", "--suppress-health-check", "all"]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": f"{Path(__file__).parent / 'openapi_hooks.py'}"}
    with _serving(folder / "state") as server:
        command.append(f"{server.url}/openapi.json")
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert httpx.get(f"{server.url}/ready").status_code == 200
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None
    assert int(tested[1]) >= len(OPERATIONS) - 1  # its own description is not asked for


# ---------------------------------------------------------------- the page


def _rows() -> str:
    lines = ["| method and path | right | what it does | answers |", "|---|---|---|---|"]
    for each in OPERATIONS:
        statuses = ", ".join(map(str, (*each.answers, *each.refusals)))
        lines.append(f"| `{each.method} {each.path}` | {each.right or '–'} | {each.about} | {statuses} |")
    return "\n".join(lines)


def _parameters() -> str:
    lines = ["| path | parameter | what it says |", "|---|---|---|"]
    for each in OPERATIONS:
        lines += [f"| `{each.method} {each.path}` | `{one.name}` | {one.about} |" for one in each.parameters]
    return "\n".join(lines)


def test_the_page_has_what_is_described() -> None:
    """`REWRITE=1` writes its tables."""
    page = PAGE.read_text()
    for name, text in (("routes", _rows()), ("parameters", _parameters())):
        mark = re.compile(rf"(<!-- {name} written by [^>]*-->\n).*?(<!-- end of {name})", re.DOTALL)
        assert mark.search(page), name
        page = mark.sub(lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}", page)  # type: ignore[misc]
    if "REWRITE" in os.environ:
        PAGE.write_text(page)
    assert page == PAGE.read_text()
