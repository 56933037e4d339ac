"""Standard input as a live source, `-`: what is written to this process, line by line, until it ends."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from threading import Event
from time import time_ns

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.source_options import STANDARD_INPUT
from cqels.model.errors import CqelsError
from cqels.pipeline.source.connection import STEP
from cqels.pipeline.source.lines import LineMessages
from cqels.pipeline.source.live_source import Accept

_SIZE = 1 << 20


def source_of(declaration: StreamDeclaration, folder: Path) -> StandardInputReceiver:
    return StandardInputReceiver(declaration)


class StandardInputReceiver:
    """Takes the lines of standard input."""

    place = STANDARD_INPUT

    def __init__(self, declaration: StreamDeclaration) -> None:
        self._lines = LineMessages(declaration)

    def run(self, accept: Accept, stop: Event) -> None:
        if sys.stdin is None:
            raise CqelsError("there is no standard input", hint="it was closed before the program started")
        file = sys.stdin.fileno()
        while not stop.is_set():
            if not select.select([file], [], [], STEP)[0]:
                continue
            if not (data := os.read(file, _SIZE)):
                accept(self._lines.last(time_ns()))
                return
            accept(self._lines.of(data, time_ns()))
