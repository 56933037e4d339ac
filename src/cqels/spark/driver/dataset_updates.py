"""Updates of the dataset while a pipeline runs, SERVICE answers and commands among them: a source beside the streams.

They are files of the checkpoint, which Spark reads as one more source.  So Spark records which micro-batch each update
belongs to before that begins: a repeated micro-batch has the same updates, and each comes once, after all elements of
its micro-batch.  A file with an answer stays until another one of its topic has been read, so the files that remain, in
their order, lead to what the engines know.  A file with quads stays until `dataset_changes.py` forgets it.

Commands add and drop queries and streams where an application is served (`served_app.py`).  Engines execute them last
in a micro-batch, so that nothing that is sent there comes of a query that replaces another one.  The last file of these
stays: it tells that it was written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from cqels.model.checksummed import seal_json, unseal_json
from cqels.model.durable_files import write_durably
from cqels.pipeline.lift.row_schemas import COMMAND
from cqels.plan.algebra import Values
from cqels.store.service_answers import answers_as_json, answers_of_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENDING = ".json"
_DATA = "data"
"""The topic of changes of the graphs; that of an answer is the key of what was asked."""
_COMMANDS, _HEARTBEAT = "command", "heartbeat"
"""The topics of commands; behind that of those for one instance alone is its number."""
_LAST = "~"
"""What the place of commands begins with that are executed last: it is greater than all digits."""
_ANEW = "begin with a new checkpoint"
_FOREVER = "36500d"
"""A file is new however old it is: the clock of the machine may have been set back."""


class Updates:
    """The updates of a checkpoint, in a folder of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._last = max((number for number, _, _ in self._files()), default=-1)
        self._lock = Lock()

    def answer(self, key: str, table: Values) -> int:
        """Write an update with what an endpoint answers now; after the return it survives a crash. Its number."""
        return self._write(key, {"answers": answers_as_json({key: table})})

    def change(self, command: str) -> int:
        """Write an update of the graphs, a command of `instance_commands.update_command`. Its number."""
        return self._write(_DATA, json.loads(command))

    def heartbeat(self, number: int, command: str) -> None:
        """Write a command that is about time alone, or about nothing, for all instances, under a number."""
        self._keep(number, _HEARTBEAT, json.loads(command))

    def reserve(self) -> int:
        """A number for commands, which nothing else will have."""
        with self._lock:
            self._last += 1
            return self._last

    def commands(self, number: int, commands: Sequence[str], instance: int | None = None) -> None:
        """Write commands under a number for one instance or all; after the return they survive a crash."""
        topic = _COMMANDS if instance is None else f"{_COMMANDS}-{instance}"
        with self._lock:
            self._last = max(self._last, number)  # it may be of an earlier run
        self._keep(number, topic, {"commands": [json.loads(each) for each in commands]})

    def has_commands(self, number: int) -> bool:
        """Whether the last commands that were written are those of a number."""
        return max((at for at, topic, _ in self._files() if topic.startswith(_COMMANDS)), default=-1) >= number

    def _write(self, topic: str, content: dict[str, Any]) -> int:
        with self._lock:
            number = self._last + 1
            self._keep(number, topic, content)
            self._last = number
            return number

    def _keep(self, number: int, topic: str, content: dict[str, Any]) -> None:
        write_durably(self.folder / f"{number:012}-{topic}{_ENDING}", seal_json(content).encode())

    def changes(self, after: int = -1) -> list[tuple[int, dict[str, Any]]]:
        """The updates of the graphs with larger numbers, those included that engines have not read yet."""
        return [
            (number, unseal_json(path.read_bytes(), f"{path}", hint=_ANEW))
            for number, topic, path in self._files()
            if topic == _DATA and number > after
        ]

    def forget_changes(self, last: int) -> None:
        """Remove updates of the graphs up to this number, but not the last of all: its number is taken."""
        for number, topic, path in self._files()[:-1]:
            if topic == _DATA and number <= last:
                path.unlink(missing_ok=True)

    def answers(self) -> dict[str, Values]:
        """The answers of endpoints in all updates, those included that engines have not read yet."""
        found: dict[str, Values] = {}
        for _, topic, path in self._files():
            if topic == _DATA or _is_command(topic):
                continue
            found |= answers_of_json(unseal_json(path.read_bytes(), f"{path}", hint=_ANEW)["answers"])
        return found

    def forget(self, last: int) -> None:
        """Remove what engines need no more that have read all up to this number, in micro-batches that are done."""
        topics: set[str] = set()
        for number, topic, path in reversed(self._files()):
            kind = _COMMANDS if topic.startswith(_COMMANDS) else topic
            if number <= last and topic != _DATA:
                if kind in topics:
                    path.unlink(missing_ok=True)
                topics.add(kind)

    def _files(self) -> list[tuple[int, str, Path]]:
        """The number, the topic and the path of each update, in order."""
        found = []
        for path in self.folder.glob(f"*{_ENDING}"):
            number, _, topic = path.stem.partition("-")
            found.append((int(number), topic, path))
        return sorted(found)

    def rows(self, spark: SparkSession, instances: Sequence[int]) -> DataFrame:
        """Each update as arriving rows (`cqels.pipeline.lift.row_schemas`), one for each of these instances."""
        from pyspark.sql import functions

        reader = spark.readStream.format("text").option("wholetext", "true").option("maxFileAge", _FOREVER)
        files = reader.option("pathGlobFilter", f"*{_ENDING}").load(_literal(self.folder))
        name = functions.col("_metadata.file_name")
        target = functions.regexp_extract(name, rf"-{_COMMANDS}-(\d+)\{_ENDING}$", 1)
        is_last = functions.contains(name, functions.lit(f"-{_COMMANDS}"))
        rows = files.select(
            functions.explode(functions.array(*map(functions.lit, instances))).alias("instance"),
            functions.lit(-1).alias("stream"),
            functions.lit(COMMAND).alias("kind"),
            functions.when(is_last, functions.concat(functions.lit(_LAST), name)).otherwise(name).alias("place"),
            functions.split_part(name, functions.lit("-"), functions.lit(1)).cast("long").alias("position"),
            functions.lit(0).cast("long").alias("number"),
            functions.lit(None).cast("binary").alias("block"),
            functions.lit(None).cast("string").alias("reason"),
            functions.col("value").alias("text"),
            target.alias("target"),
        )
        mine = (functions.col("target") == "") | (functions.col("target") == functions.col("instance").cast("string"))
        return rows.where(mine).drop("target")


def _is_command(topic: str) -> bool:
    return topic.startswith((_COMMANDS, _HEARTBEAT))


def _literal(folder: Path) -> str:
    """A folder of this machine as Spark reads it, to which some characters are those of a pattern."""
    return "file:" + "".join(f"\\{each}" if each in "{}[]*?\\" else each for each in str(folder.absolute()))
