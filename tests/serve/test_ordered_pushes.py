"""Who pushes ahead of the answers over a WebSocket keeps the order of elements, also where the inbox is full."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from threading import Thread

import httpx
from websockets.sync.client import connect

from cqels.live.live_run import LiveSettings
from cqels.model.time import SECOND
from cqels.serve.backend import Pipeline
from cqels.store.dataset import Store

from ..live.servers import eventually
from .serving import served

COUNT = 200
"""Elements of 6 KB: they do not fit into the inbox of 64 KB."""


def test_elements_do_not_overtake_those_that_were_refused(tmp_path: Path) -> None:
    draw = Random(1)
    lines = [
        f'<http://ex.org/{draw.randbytes(3000).hex()}> <http://ex.org/number> {number} "{number}" .'
        for number in range(COUNT)
    ]
    pipeline = Pipeline(store=Store(), settings=LiveSettings(lasting=True, trigger=SECOND // 10))
    with served(tmp_path, pipeline) as server, httpx.Client(base_url=server.url) as client:
        client.put("/streams/obs", json={"inbox": "64KB"})
        text = "SELECT ?n WHERE { STREAM <obs> [NOW] { ?s <http://ex.org/number> ?n } }"
        assert client.put("/queries/seen", content=text).status_code == 201
        answers: list[dict[str, int]] = []
        with connect(f"{server.url.replace('http', 'ws')}/streams/obs") as socket:
            sending = Thread(target=lambda: [socket.send(line) for line in lines])
            sending.start()
            while len(answers) < COUNT:
                answers.append(json.loads(socket.recv(timeout=20)))
            sending.join()
        assert answers == [{"accepted": 1}] * COUNT
        assert client.get("/streams/obs").json()["counts"]["refused"] > 0
        eventually(lambda: client.get("/").json()["elements"] == COUNT)
        assert client.get("/").json()["late"] == 0
        found = client.get("/queries/seen/results?from=start", headers={"Accept": "application/json"}).json()["results"]
        assert [int(each["bindings"]["n"]["value"]) for each in found] == [*range(COUNT)]
