"""Updates of the dataset while a pipeline runs, such as new answers of SERVICE endpoints: a source beside the streams.

They are files of the checkpoint, which Spark reads as one more source.  So Spark records which micro-batch each update
belongs to before that begins: a repeated micro-batch has the same updates, and each comes once, after all elements of
its micro-batch.  A file stays until another one of its topic has been read, so the files that remain, in their order,
lead to what the engines know.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cqels.model.checksummed import seal_json, unseal_json
from cqels.plan.algebra import Values
from cqels.spark.lift.row_schemas import COMMAND
from cqels.spark.sink.exactly_once_file import write_durably
from cqels.store.service_answers import answers_as_json, answers_of_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENDING = ".json"
_ANEW = "begin with a new checkpoint"
_FOREVER = "36500d"
"""A file is new however old it is: the clock of the machine may have been set back."""


class Updates:
    """The updates of a checkpoint, in a folder of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._last = max((number for number, _, _ in self._files()), default=-1)

    def answer(self, key: str, table: Values) -> int:
        """Write an update with what an endpoint answers now; after the return it survives a crash. Its number."""
        self._last += 1
        content = seal_json({"answers": answers_as_json({key: table})})
        write_durably(self.folder / f"{self._last:012}-{key}{_ENDING}", content.encode())
        return self._last

    def answers(self) -> dict[str, Values]:
        """The answers of endpoints in all updates, those included that engines have not read yet."""
        found: dict[str, Values] = {}
        for _, _, path in self._files():
            found |= answers_of_json(unseal_json(path.read_bytes(), f"{path}", hint=_ANEW)["answers"])
        return found

    def forget(self, last: int) -> None:
        """Remove what engines need no more that have read all up to this number, in micro-batches that are done."""
        topics: set[str] = set()
        for number, topic, path in reversed(self._files()):
            if number <= last:
                if topic in topics:
                    path.unlink(missing_ok=True)
                topics.add(topic)

    def _files(self) -> list[tuple[int, str, Path]]:
        """The number, the topic and the path of each update, in order."""
        found = []
        for path in self.folder.glob(f"*{_ENDING}"):
            number, _, topic = path.stem.partition("-")
            found.append((int(number), topic, path))
        return sorted(found)

    def rows(self, spark: SparkSession, instances: Sequence[int]) -> DataFrame:
        """Each update as arriving rows (`cqels.spark.lift.row_schemas`), one for each of these instances."""
        from pyspark.sql import functions

        reader = spark.readStream.format("text").option("wholetext", "true").option("maxFileAge", _FOREVER)
        files = reader.option("pathGlobFilter", f"*{_ENDING}").load(_literal(self.folder))
        name = functions.col("_metadata.file_name")
        return files.select(
            functions.explode(functions.array(*map(functions.lit, instances))).alias("instance"),
            functions.lit(-1).alias("stream"),
            functions.lit(COMMAND).alias("kind"),
            name.alias("place"),
            functions.split_part(name, functions.lit("-"), functions.lit(1)).cast("long").alias("position"),
            functions.lit(0).cast("long").alias("number"),
            functions.lit(None).cast("binary").alias("block"),
            functions.lit(None).cast("string").alias("reason"),
            functions.col("value").alias("text"),
        )


def _literal(folder: Path) -> str:
    """A folder of this machine as Spark reads it, to which some characters are those of a pattern."""
    return "file:" + "".join(f"\\{each}" if each in "{}[]*?\\" else each for each in str(folder.absolute()))
