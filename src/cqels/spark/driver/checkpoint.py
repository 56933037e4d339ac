"""The checkpoint of an application, on the driver: a folder with a manifest and our files beside those of Spark.

A run can go on from a checkpoint with the same streams and data and with the same queries, or more; anything else is
refused, with the differences.  The names of folders, files and fields are its format and stay.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

from cqels.model.checksummed import seal_json, unseal_json
from cqels.model.durable_files import write_durably
from cqels.model.errors import CqelsError, Damaged
from cqels.model.folder_lock import LOCK, FolderLock
from cqels.model.release import RELEASE
from cqels.model.sizes import format_size
from cqels.model.time import format_duration
from cqels.pipeline.instance.program import Dataset, ShippedBytes
from cqels.plan.algebra import Values
from cqels.spark.driver.global_stages import LastFilesIndex
from cqels.spark.operator.state_layouts import FIVE_VARIABLES
from cqels.store.service_answers import Answers, read_answers, write_answers

VERSION = 4
"""Of the file; what an older one from 3 on says is understood."""
_OLDEST = 3
_ANEW = "begin with a new checkpoint"
_IN_USE = "one run at a time goes on from a checkpoint: stop that one, or wait for its end"
_PART = 512
"""Bytes that have a checksum of Hadoop's."""
_UPDATE = re.compile(r'"path":"file:[^"]*/updates/(\d{12}-[^"/]*\.json)"')
"""An update (`cqels.spark.driver.dataset_updates`) among the files that Spark has read."""
_SUM = re.compile(rb"# crc32 ([0-9a-f]{8})\n\Z")


@dataclass
class Manifest:
    """The file `cqels.json` of a checkpoint."""

    id: str
    instances: int
    keys: list[int]
    """Those of the instances' state: they stay the same if a later session asks for another number of partitions."""
    start: int
    streams: list[dict[str, Any]]
    """In the order of their numbers: IRI, lateness, idle, arrival, punctuated, and whether they end."""
    data: str
    """The digest of the static data."""
    queries: dict[str, str] = field(default_factory=dict)
    """Names and fingerprints, in the order of registration; of its parts where a query is partitioned."""
    spread: dict[str, int] = field(default_factory=dict)
    """The partitioned queries, and the number of their parts."""
    texts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Names of queries, and what they were prepared from."""
    rests: dict[str, str] = field(default_factory=dict)
    """The queries that have a global stage, and its fingerprint."""
    placed: dict[str, int] = field(default_factory=dict)
    """Names and instances."""
    again: dict[str, int] = field(default_factory=dict)
    """How often queries of a name were dropped: one that comes again is another one."""
    origins: dict[str, str] = field(default_factory=dict)
    """Instances that begin with what others knew, and the files in which that is."""
    budgets: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """Of the queries that have one: what they keep from their registration on."""
    stopped: dict[str, str] = field(default_factory=dict)
    """The queries that took more than their budgets, and the reasons."""
    outputs: list[str] = field(default_factory=list)
    """Files and folders that results were written to."""
    services: bool = False
    """There are answers of endpoints."""
    updates: bool = False
    """Spark has a source of updates (`cqels.spark.driver.dataset_updates`) beside those of the streams."""
    clock: bool = False
    """Spark has a source of heartbeats by the wall clock (`cqels.spark.source.clock_source`) behind all others."""
    layout: int = FIVE_VARIABLES
    """That of the engines' state in Spark's state store (`cqels.spark.operator.state_layouts`)."""
    partitions: int = 0
    """Spark's tasks for the engine instances; 0 in checkpoints of releases that left it to the session."""
    latency: str = "normal"
    """With low, there is one engine instance in the driver, whose state is in a folder of the checkpoint."""
    ended: bool = False
    """All streams have ended, in a micro-batch that may be repeated."""
    finished: bool = False
    """There is nothing left to do."""
    served: bool = False
    """Streams and queries are added by commands (`cqels.spark.driver.served_app`), which no other run goes on with."""
    release: str = RELEASE
    """That which wrote it."""
    version: int = VERSION

    @property
    def closed(self) -> set[int]:
        """Instances that have no query any more: what came since they do not know, so they get none."""
        return set() if self.served else set(range(self.instances)) - {*self.placed.values()}


_STATE_FILE = re.compile(r"\.?(\d+)\.(?:changelog|zip|delta|snapshot)(?:\.crc)?")
"""The names of Spark's files of state, which begin with their version."""


class Checkpoint:
    """A directory that an application goes on from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "cqels.json"
        self._data = folder / "data.nq"
        self._stages = folder / "rests"
        self.stage_files = LastFilesIndex(folder / "rests.json")
        """The last files of all global stages."""
        self._services = folder / "services"
        self.updates = folder / "updates"
        self.instance = folder / "instance"
        """The state of the engine instance in the driver, where the latency is low."""
        self.clock = folder / "clock.json"
        self.datasets = folder / "dataset"
        self.watched = folder / "watched"
        self._lock = FolderLock(folder, "the checkpoint", hint=_IN_USE)

    @property
    def spark(self) -> str:
        """Where Spark keeps offsets and state."""
        return str(self.folder / "spark")

    def is_done(self, batch: int) -> bool:
        """Spark has written down that a micro-batch is done; there is none before the first."""
        return batch < 0 or (self.folder / "spark" / "commits" / str(batch)).exists()

    @property
    def done(self) -> int:
        """The last micro-batch that is; -1 if none is."""
        return max(self._numbered("commits"), default=-1)

    @property
    def is_begun(self) -> bool:
        """Some micro-batch is done."""
        return self.done >= 0

    @property
    def is_planned(self) -> bool:
        """Spark has written down how far some micro-batch goes."""
        return len(self._numbered("offsets")) > 0

    def read(self) -> Manifest | None:
        """What it belongs to; None if it is new."""
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            if Path(self.spark).exists():
                raise Damaged(f"{self._file} is gone, which says what the checkpoint is of", hint=_ANEW) from None
            return None
        if b'"checksum"' not in text and b'"version": 2' in text:
            raise CqelsError(
                f"the checkpoint {self.folder} is of a release before 0.2, whose state cannot be read any more",
                hint="go on with cqels 0.1, or begin with a new checkpoint",
            )
        content = unseal_json(text, str(self._file), hint=_ANEW)
        if not _OLDEST <= content["version"] <= VERSION:
            raise CqelsError(
                f"the checkpoint {self.folder} was written by cqels {content['release']}, and this is {RELEASE}",
                hint=f"go on with cqels {content['release']} or newer, or {_ANEW}",
            )
        known = {each.name: content[each.name] for each in fields(Manifest) if each.name in content}
        return Manifest(**known | {"version": VERSION, "release": RELEASE})

    def write(self, manifest: Manifest) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_durably(self._file, seal_json(asdict(manifest), indent=1).encode())

    # ------------------------------------------------------------ one run at a time

    def lock(self) -> None:
        """Have it for this run alone, until `unlock` or the end of the process; refuse if another run has it."""
        self._lock.acquire()

    def discard_incomplete(self) -> None:
        """Remove the state that tasks have written of a micro-batch that is not done: it is processed again.

        What is written then may have other bytes that mean the same, such as a snapshot.  The state of the
        micro-batches after it builds on those, and may not be mixed with these (`spark_session.RENAMED_FILES`).
        """
        incomplete = self.done + 1
        if incomplete not in self._numbered("offsets"):
            return
        version = incomplete + 1  # of the state after it
        for path in Path(self.spark, "state").rglob("*"):
            if (found := _STATE_FILE.fullmatch(path.name)) and int(found[1]) == version:
                path.unlink(missing_ok=True)

    def unlock(self) -> None:
        """Let another run have it."""
        self._lock.release()

    def keep(self, content: bytes) -> str:
        """A new file with what an instance begins with: its name."""
        name = f"origin-{uuid4().hex}"
        write_durably(self.folder / name, content)
        return name

    def forget(self, manifest: Manifest, instances: Collection[int]) -> None:
        """Remove what some instances began with, which they know by now."""
        for name in [manifest.origins.pop(str(each), None) for each in instances]:
            if name is not None:
                self.write(manifest)
                (self.folder / name).unlink(missing_ok=True)

    def stage_folder(self, part: str, times: int) -> Path:
        """The folder of the global stage of a query that has a part of this name, and was dropped so many times."""
        return self._stages / sha256(f"{part} {times}".encode()).hexdigest()

    def remove_other_stages(self, but: Collection[Path]) -> None:
        """Remove the folders of all global stages but these."""
        for folder in self._stages.glob("*"):
            if folder not in but:
                shutil.rmtree(folder, ignore_errors=True)

    def put_aside(self, manifest: Manifest) -> Path:
        """Be new: what there was goes to a folder in it, last what says what it is of."""
        aside = self.folder / f"before-{manifest.id}"
        aside.mkdir(exist_ok=True)  # a process may have been ended in the middle of this
        there = [path for path in self.folder.iterdir() if path.name != LOCK and "before-" not in path.name]
        for path in sorted(there, key=lambda path: path == self._file):
            path.rename(aside / path.name)
        return aside

    def tidy(self) -> None:
        """Remove what killed processes have left on a local disk, and refuse a file of Spark that is damaged.

        Hadoop keeps a checksum beside each file.  What a repeated micro-batch writes again is replaced at once, but its
        checksum right after it: a process that is killed in between leaves two that do not fit, and Spark could not go
        on, ever.  So it is with files of state, whose values have checksums of their own.
        """
        done, spark = self.done, Path(self.spark)
        if max(self._numbered("offsets"), default=-1) < done:  # Spark would go back to an earlier one
            raise Damaged(f"{spark / 'offsets' / str(done)} is gone, which says how far a micro-batch goes", hint=_ANEW)
        for path in spark.glob("**/.*"):
            if ".tmp" in path.suffixes:
                path.unlink(missing_ok=True)
            elif path.suffix == ".crc":
                _tidy(path, spark, path.with_name(path.name[1:].removesuffix(".crc")), done)
        for path in spark.glob("state/*/_metadata/v2/[0-9]*"):
            _correct_paths(path, path.parents[2] / "_stateSchema")
        for path in spark.glob("sources/*/[0-9]*"):
            _correct_updates(path, self.updates.absolute().as_uri())

    def _numbered(self, log: str) -> list[int]:
        """The micro-batches that a log of Spark has."""
        return [int(path.name) for path in (self.folder / "spark" / log).glob("*") if path.name.isdigit()]

    def dataset(self, dataset: Dataset) -> Dataset:
        """The same data as it was when the checkpoint was new: its blank nodes, which state refers to, have names."""
        if not dataset.has_blank_nodes:
            return dataset
        if self.read() is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            quads = dataset.quads.read()
            write_durably(self._data, quads + f"# crc32 {crc32(quads):08x}\n".encode())
        try:
            text = self._data.read_bytes()
        except FileNotFoundError:
            raise Damaged(f"{self._data} is gone, which has the static data as it was", hint=_ANEW) from None
        found = _SUM.search(text)
        if found is None or int(found[1], 16) != crc32(text[: found.start()]):
            raise Damaged(f"{self._data} is damaged: it has other bytes than were written", hint=_ANEW)
        return replace(dataset, quads=ShippedBytes(text[: found.start()]))

    def answers(self, before: Manifest | None) -> dict[str, Values]:
        """What endpoints answered when they were first asked: an engine that is made again must know the same."""
        if self._services.exists():
            return read_answers(self._services.read_bytes())
        if before is not None and before.services:
            raise Damaged(f"{self._services} is gone, which has the answers of endpoints", hint=_ANEW)
        return {}

    def keep_answers(self, answers: Answers, manifest: Manifest) -> None:
        """Have them before a manifest is written that says so."""
        if answers:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_durably(self._services, write_answers(answers))
            manifest.services = True

    def check(self, before: Manifest, now: Manifest) -> None:
        """Refuse to go on with other streams or queries than before, saying what has changed."""
        missing = _parts(before, now) or _missing(before.queries, now.queries)
        faults = [*_changes(before, now), *missing, *_budgets(before, now)]
        if faults:
            raise CqelsError(
                f"the checkpoint {self.folder} is of another application: {'; '.join(faults)}",
                hint="begin with a new checkpoint, or run what it belongs to; queries may be added",
            )


def _tidy(checksum: Path, spark: Path, file: Path, done: int) -> None:
    """Remove a file of Spark if it does not fit its checksum and is of no use, or a checksum of none."""
    if not file.exists():
        checksum.unlink(missing_ok=True)
    elif not fits(file, checksum):
        match file.relative_to(spark).parts:
            case ["state", _, "_metadata", "v2", name] if name.isdigit() and int(name) > done:
                file.unlink()
            case ["state", _, store, *folders, name] if store.isdigit():
                version = re.match(r"\d+", name)
                if not folders and version is not None and int(version[0]) > done + 1:
                    file.unlink()
            case _:
                raise Damaged(f"{file} is damaged: it has other bytes than were written", hint=_ANEW)
        checksum.unlink(missing_ok=True)  # of what was replaced; the values in it have checksums of their own


def _correct_paths(metadata: Path, schemas: Path) -> None:
    """Correct the paths of schema files in Spark's metadata of state, if the checkpoint was moved to another folder."""
    version, _, text = metadata.read_text().partition("\n")
    try:
        content = json.loads(text)
        stores = {store["storeName"]: store for store in content["stateStoreInfo"]}
        known = {
            name: [Path(each.removeprefix("file:")) for each in store["stateSchemaFilePaths"]]
            for name, store in stores.items()
        }
    except (ValueError, TypeError, KeyError):
        raise Damaged(f"{metadata} is damaged: it is not the JSON that was written", hint=_ANEW) from None
    if all(path.parent.resolve() == (schemas / name).resolve() for name in known for path in known[name]):
        return
    for name, paths in known.items():
        stores[name]["stateSchemaFilePaths"] = [f"file:{(schemas / name / path.name).absolute()}" for path in paths]
    _replace(metadata, f"{version}\n{json.dumps(content, separators=(',', ':'))}".encode())


def _correct_updates(log: Path, folder: str) -> None:
    """Correct the paths of updates in Spark's list of files that it has read, which would be read again elsewhere."""
    text = log.read_text()
    correct = _UPDATE.sub(lambda found: f'"path":"{folder}/{found[1]}"', text)
    if correct != text:
        _replace(log, correct.encode())


def _replace(file: Path, content: bytes) -> None:
    """Write a file of Spark anew, with its checksums."""
    checksum = file.with_name(f".{file.name}.crc")
    checksum.unlink(missing_ok=True)  # if this is ended now, there is none that does not fit
    write_durably(file, content)
    write_durably(checksum, checksums(content))


def checksums(content: bytes) -> bytes:
    """What Hadoop writes beside a file: `crc`, 0, the bytes of a part, and CRC-32 of each part."""
    parts = (content[at : at + _PART] for at in range(0, len(content), _PART))
    return b"crc\0" + _PART.to_bytes(4, "big") + b"".join(crc32(part).to_bytes(4, "big") for part in parts)


def fits(file: Path, checksum: Path) -> bool:
    """Whether a file is what Hadoop's checksums beside it are of."""
    expected = checksum.read_bytes()
    size = int.from_bytes(expected[4:8], "big")
    if expected[:4] != b"crc\0" or size == 0:
        return False
    sums = []
    with file.open("rb") as content:
        while part := content.read(size):
            sums.append(crc32(part).to_bytes(4, "big"))
    return expected[8:] == b"".join(sums)


def _changes(before: Manifest, now: Manifest) -> list[str]:
    faults = []
    then, there = ({each["iri"]: each for each in manifest.streams} for manifest in (before, now))
    faults += [f"there is no stream <{iri}> any more" for iri in then if iri not in there]
    faults += [f"stream <{iri}> is new" for iri in there if iri not in then]
    for iri in then:
        for word in then[iri]:
            if iri in there and then[iri][word] != there[iri][word]:
                faults.append(f"{word} of stream <{iri}> was {then[iri][word]} and is {there[iri][word]}")
    if not faults and list(then) != list(there):
        faults.append("the streams are in another order")
    if before.data != now.data:
        faults.append("the static data has changed")
    if before.start != now.start:
        faults.append(f"the start was {before.start} and is {now.start}")
    return faults


def _budgets(before: Manifest, now: Manifest) -> list[str]:
    formats = {"memory": format_size, "time": format_duration}
    faults = []
    for name in before.queries:
        for word, format in formats.items():
            then, there = (each.budgets.get(name, {}).get(word) for each in (before, now))
            if then != there and name in now.queries:
                faults.append(f"the {word} of query {name} was {_limit(then, format)} and is {_limit(there, format)}")
    return faults


def _limit(most: int | None, format: Callable[[int], str]) -> str:
    return "not limited" if most is None else format(most)


def _parts(before: Manifest, now: Manifest) -> list[str]:
    faults = [f"query {name} was partitioned and is not" for name in before.spread if name in now.queries]
    faults += [f"query {name} was not partitioned and is" for name in now.spread if name in before.queries]
    return faults + [
        f"query {name} has changed"
        for name in before.spread
        if name in now.spread and before.rests.get(name) != now.rests.get(name)
    ]


def _missing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    faults = [f"there is no query {name} any more" for name in before if name not in now]
    return faults + [f"query {name} has changed" for name in before if name in now and before[name] != now[name]]
