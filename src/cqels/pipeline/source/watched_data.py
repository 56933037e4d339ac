"""Static files that are watched: when one has changed, the difference is an update of the dataset.

    watched = WatchedData(files)
    watched.load(store)                        # instead of store.load: blank nodes have names that stay the same
    watched.go_back(store, folder)             # where a run goes on: the versions that it began with, not today's
    watched.open(folder)                       # which keeps versions from run to run
    for each in watched.changes():             # from time to time
        …make `each.apply`, a function of the store, or `each.command` an update; then each.keep()

A version that cannot be read is reported once, and the one before it stays.  A file is read when it has been the same
at two looks, so that one that is being written is not taken for a whole one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyoxigraph
from pyoxigraph import BlankNode, NamedNode, Quad, RdfFormat, parse, serialize

from cqels.ingest import read_graph
from cqels.model.durable_files import write_durably
from cqels.model.errors import CqelsError
from cqels.store.dataset import Store

_LOG = logging.getLogger("cqels")
_Stamp = tuple[int, int, int]
"""The time, the size and the number of a file by which a change is noticed."""


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file, its format where that is given, and the graph that it is for (None: the default graph)."""

    path: str
    format: str | None = None
    graph: NamedNode | None = None

    @property
    def key(self) -> str:
        return sha256(f"{self.path} {self.graph}".encode()).hexdigest()[:16]

    def quads(self) -> frozenset[Quad]:
        """What the file has; its blank nodes have names that are the same whenever it has the same content."""
        quads = list(read_graph(self.path, self.graph, format=self.format))
        if not any(isinstance(term, BlankNode) for quad in quads for term in (quad.subject, quad.object)):
            return frozenset(quads)
        canonical = pyoxigraph.Dataset(quads)
        canonical.canonicalize(pyoxigraph.CanonicalizationAlgorithm.RDFC_1_0)
        return frozenset(self._named(quad) for quad in canonical)

    def _named(self, quad: Quad) -> Quad:
        subject, value = quad.subject, quad.object
        if isinstance(subject, BlankNode):
            subject = BlankNode(f"w{self.key}{subject.value}")
        if isinstance(value, BlankNode):
            value = BlankNode(f"w{self.key}{value.value}")
        return Quad(subject, quad.predicate, value, quad.graph_name)

    def stamp(self) -> _Stamp | None:
        """None if there is no such file."""
        try:
            found = Path(self.path).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass(frozen=True, slots=True)
class FileChange:
    """What has changed in a file."""

    file: WatchedFile
    removed: frozenset[Quad]
    added: frozenset[Quad]
    versions: WatchedData
    now: frozenset[Quad]

    def apply(self, store: Store) -> None:
        """The update; what another watched file has, too, stays."""
        store.change(self.removed - self.versions.others(self.file), self.added)

    @property
    def command(self) -> str:
        """The same as a command for an engine instance (`instance_commands.py`)."""
        removed = self.removed - self.versions.others(self.file)
        texts = [(serialize(each, format=RdfFormat.N_QUADS) or b"").decode() for each in (removed, self.added)]
        return json.dumps({"remove": texts[0], "add": texts[1]})

    def keep(self) -> None:
        """The update is made: from now on this is what the file had."""
        self.versions.keep(self.file, self.now)


class WatchedData:
    """The watched files of a run, with the versions of them that the dataset has."""

    def __init__(self, files: Iterable[WatchedFile] = ()) -> None:
        self.files: tuple[WatchedFile, ...] = ()
        self._given = tuple(dict.fromkeys(files))
        self._folder: Path | None = None
        self._versions: dict[WatchedFile, frozenset[Quad]] = {}
        self._seen: dict[WatchedFile, _Stamp | None] = {}
        """The files as they were at the last look."""
        self._read: dict[WatchedFile, _Stamp | None] = {}
        """The files as they were when they were read."""

    def load(self, store: Store) -> int:
        """Add the files to the dataset: how many triples they have."""
        return sum(self.add(each, store) for each in self._given)

    def add(self, file: WatchedFile, store: Store) -> int:
        """Watch one more file, and add it to the dataset: how many triples it has."""
        self._read[file] = file.stamp()
        quads = self._versions[file] = file.quads()
        with store.transaction():
            if file.graph is not None:
                store.create_graph(file.graph)
            store.add(quads)
        self.files = tuple(dict.fromkeys([*self.files, file]))
        return len(quads)

    def open(self, folder: Path) -> None:
        """Keep versions in a folder from now on; one that has none of a file gets the present one."""
        self._folder = folder
        for each in self.files:
            if not self._path(each).exists():
                self.keep(each, self._versions[each])
                self._write(self._path(each, first=True), self._versions[each])

    def go_back(self, store: Store, folder: Path) -> None:
        """Have the versions in the dataset that runs with a folder began with.

        What they made of it since they know; what has changed since the last of them is found by `changes`.
        """
        self._folder = folder
        known = [each for each in self.files if self._path(each, first=True).exists()]
        now = {each: self._versions[each] for each in known}
        self._versions |= {each: _quads_in(self._path(each, first=True)) for each in known}
        for each in known:
            then = self._versions[each]
            store.change((now[each] - then) - self.others(each), then - now[each])
        for each in known:
            self._versions[each] = _quads_in(self._path(each))
            if now[each] != self._versions[each]:
                self._read.pop(each, None)

    def changes(self) -> Iterator[FileChange]:
        """What has changed since the last look."""
        for each in self.files:
            stamp, before = each.stamp(), self._seen.get(each)
            is_first = each not in self._seen
            self._seen[each] = stamp
            if each in self._read and stamp == self._read[each]:
                continue
            if not is_first and stamp == before:
                yield from self._change(each, stamp)

    def _change(self, file: WatchedFile, stamp: _Stamp | None) -> Iterator[FileChange]:
        self._read[file] = stamp
        if stamp is None:
            _LOG.warning("%s is gone: what it had stays in the dataset", file.path)
            return
        try:
            now = file.quads()
        except CqelsError as error:
            _LOG.warning("the new version of %s is not taken, the old one stays: %s", file.path, error)
            return
        then = self._versions[file]
        if now != then:
            _LOG.info("%s has changed: %d triples less, %d more", file.path, len(then - now), len(now - then))
            yield FileChange(file, then - now, now - then, self, now)

    def read_again(self, file: WatchedFile) -> None:
        """A change was not made: find it again at the next look."""
        self._read.pop(file, None)

    def others(self, file: WatchedFile) -> frozenset[Quad]:
        """What the other watched files have."""
        return frozenset().union(*(quads for each, quads in self._versions.items() if each != file))

    def keep(self, file: WatchedFile, quads: frozenset[Quad]) -> None:
        """The dataset has this version of a file."""
        self._versions[file] = quads
        if self._folder is not None:
            self._write(self._path(file), quads)

    def _write(self, path: Path, quads: frozenset[Quad]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, serialize(quads, format=RdfFormat.N_QUADS) or b"")

    def _path(self, file: WatchedFile, *, first: bool = False) -> Path:
        assert self._folder is not None
        return self._folder / f"{file.key}{'-first' if first else ''}.nq"


def _quads_in(path: Path) -> frozenset[Quad]:
    return frozenset(parse(path.read_bytes(), RdfFormat.N_QUADS))
