"""A live run of `cqels run --engine embedded` at full rate for a long time: is its memory level?

`bench/live.py --minutes 60` calls this.  A process of its own sends JSON lines over a socket as fast as they are taken.
Each is an observation with an IRI that never comes again, so terms come and go as windows do.  The run has two queries
(groups over a sliding window, and a join of two windows), a state folder and a file of results.  Every few seconds its
resident memory, the size of its state folder and how much it has read are noted.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from measure import CONSOLE, per_second
from rich.table import Table

EX = "http://example.org/"
STREAM = EX + "readings"
TEMPLATE = f"""
subject = "{EX}observation/{{id}}"

[time]
column = "at"

[predicates]
"{EX}temperature" = {{ column = "t" }}
"{EX}by" = {{ iri = "{EX}sensor/{{sensor}}" }}
"{EX}room" = {{ iri = "{EX}room/{{room}}" }}
"""
QUERIES = {
    "rooms": f"""SELECT ?room (COUNT(*) AS ?n) (AVG(?t) AS ?mean) WHERE {{
  STREAM <{STREAM}> [RANGE 10s SLIDE 5s] {{ ?o <{EX}room> ?room ; <{EX}temperature> ?t }} }} GROUP BY ?room""",
    "again": f"""SELECT ?a ?b WHERE {{
  STREAM <{STREAM}> [NOW] {{ ?a <{EX}room> ?r ; <{EX}temperature> ?t }}
  STREAM <{STREAM}> [RANGE 500ms] {{ ?b <{EX}room> ?r ; <{EX}temperature> ?u }}
  FILTER (?t > 26.8 && ?u > 26.8 && ?a != ?b) }}""",
}
SAMPLE = 10.0
"""Seconds between two samples."""
CHUNK = 2000


@dataclass(frozen=True)
class Sample:
    """What was seen at one moment."""

    seconds: float
    sent: int
    resident: int
    folder: int


def feed(port: Any, sent: Any) -> None:
    """Send observations to whoever connects, as fast as they are taken; one a millisecond by their times."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port.send(server.getsockname()[1])
        connection, _ = server.accept()
        with connection:
            number = 0
            while True:
                part = range(number, number + CHUNK)
                try:
                    connection.sendall("".join(map(_line, part)).encode())
                except OSError:
                    return
                number += CHUNK
                sent.value = number


def _line(number: int) -> str:
    return (
        f'{{"id": {number}, "sensor": "s{number % 1000}", "room": "r{number % 50}", '
        f'"t": {20 + number % 70 / 10}, "at": {1_700_000_000_000 + number}}}\n'
    )


@contextmanager
def running(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "template.toml").write_text(TEMPLATE)
    for name, text in QUERIES.items():
        (folder / f"{name}.rq").write_text(text)
    source = f"<{STREAM}>=tcp://127.0.0.1:{port}?template={folder / 'template.toml'}"
    command = [sys.executable, "-c", "from cqels.cli import main; main()", "run"]
    command += [*(str(folder / f"{name}.rq") for name in QUERIES), "--engine", "embedded", "--stream", source]
    command += ["--state", str(folder / "state"), "--out", f"{folder / 'results'}/", "--format", "csv"]
    with (
        (folder / "said").open("wb") as said,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said) as run,
    ):
        try:
            yield run
        finally:
            run.send_signal(signal.SIGINT)
            try:
                run.wait(120)
            except subprocess.TimeoutExpired:
                run.kill()


def soak(minutes: float) -> list[Sample]:
    """Run so long, and say what was seen; samples while it got warm are the first."""
    context = get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    sent = context.Value("q", 0, lock=False)
    feeder = context.Process(target=feed, args=(sending, sent), daemon=True)
    feeder.start()
    samples: list[Sample] = []
    try:
        with tempfile.TemporaryDirectory(prefix="cqels-soak-") as name:
            folder = Path(name)
            with running(folder, receiving.recv()) as run:
                began = time.monotonic()
                while (now := time.monotonic() - began) < 60 * minutes:
                    time.sleep(SAMPLE)
                    if run.poll() is not None:
                        raise SystemExit(f"the run has ended: {(folder / 'said').read_text(errors='replace')[-2000:]}")
                    samples.append(Sample(now, sent.value, _resident(run.pid), _size(folder / "state")))
                    if len(samples) % 30 == 0:
                        CONSOLE.print(_told(samples[-30:]))
    finally:
        feeder.terminate()
        feeder.join()
    return samples


def _resident(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _size(folder: Path) -> int:
    total = 0
    for each in folder.rglob("*"):
        try:
            total += each.stat().st_size
        except OSError:  # it is gone since
            continue
    return total


def _told(part: list[Sample]) -> str:
    rate = (part[-1].sent - part[0].sent) / max(part[-1].seconds - part[0].seconds, 1)
    memory, folder = (median(getattr(each, what) for each in part) for what in ("resident", "folder"))
    minutes = part[-1].seconds / 60
    return f"{minutes:5.1f} min  {per_second(rate)}  memory {memory / 1e6:.0f} MB  state {folder / 1e6:.0f} MB"


def quarters(samples: list[Sample]) -> Table:
    """Medians of the quarters of a run: memory that grows is seen as such."""
    table = Table("quarter", "taken", "memory", "largest", "state folder", title=f"{samples[-1].sent:,} observations")
    size = len(samples) // 4
    for number in range(4):
        part = samples[number * size : (number + 1) * size]
        rate = (part[-1].sent - part[0].sent) / (part[-1].seconds - part[0].seconds)
        memory = [each.resident for each in part]
        table.add_row(
            str(number + 1),
            per_second(rate),
            f"{median(memory) / 1e6:.0f} MB",
            f"{max(memory) / 1e6:.0f} MB",
            f"{median(each.folder for each in part) / 1e6:.0f} MB",
        )
    return table
