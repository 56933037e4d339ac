"""Standard input as a source: `--stream '<iri>=-'`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import cast

from cqels.ingest.input_files import MARK, reading
from cqels.ingest.source_options import STANDARD_INPUT
from cqels.model.errors import DataError

_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class StandardInput:
    """The lines that are written to this process, as they come."""

    place: str = STANDARD_INPUT

    def chunks(self) -> Iterator[bytes]:
        if sys.stdin is None:
            raise DataError("there is no standard input", hint="it was closed before the program started")
        file = cast(BufferedReader, sys.stdin.buffer)
        rest, mark = bytearray(), MARK
        with reading(Path(self.place)):
            while data := file.read1(_SIZE):
                end = data.rfind(b"\n") + 1
                if end:
                    yield bytes(rest + data[:end]).removeprefix(mark)
                    rest, mark = bytearray(), b""
                rest += data[end:]
        if rest:  # a last line without an end
            yield bytes(rest).removeprefix(mark)
