"""Bytes for engine instances in a file that each machine of a cluster fetches once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.files import SparkFiles

from cqels.pipeline.instance.program import ShippedBytes


@dataclass(frozen=True, slots=True)
class FetchedBytes(ShippedBytes):
    """The file is known by the name that it has among the files of Spark."""

    file: str = ""

    def read(self) -> bytes:
        return Path(SparkFiles.get(self.file)).read_bytes()
