"""How the state of an engine instance lies in Spark's state store: which variables there are, and what is in each.

Each variable costs every task of every micro-batch: Java makes encoders for it and answers for it once, 4 to 15 ms.  So
new checkpoints have two.  Those of releases up to 0.2 have five, and keep them: the manifest of a checkpoint says which
layout it has, and a checkpoint without a manifest (of a DataFrame) has the first one.

Whatever the layout, the state is a *head*, the fingerprints of the queries, *commands*, a *snapshot*, and a *log*.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from zlib import crc32

from cqels.model.checksummed import seal_json, unseal_json
from cqels.model.errors import Damaged
from cqels.pipeline.instance.instance_commands import hash_commands, passes

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

FIVE_VARIABLES, TWO_VARIABLES = 1, 2
"""The numbers of the layouts, in manifests."""
CHUNK = 4 << 20
"""Bytes of a snapshot in one entry of the state store."""
_STATE = "the state of an engine in the checkpoint"
_ANEW = "begin with a new checkpoint"
_SNAPSHOT, _COMMAND, _ARRIVAL = "snapshot", "command", "arrival"
"""The kinds of entries of the second layout."""

Entry: TypeAlias = tuple[int, int, str, bytes | None, str | None]
"""An entry of the log: the micro-batch, and the fields of an `Arrival`."""


@dataclass(frozen=True, slots=True)
class Head:
    """A summary of the state of an instance, kept beside it as JSON with these names.

    `commands` is how many there are, `saved_commands` how many were given before the snapshot; `program` is the digest
    of the queries that it last had.  `entries` is how many the log has; the `…_sum` are checksums.
    """

    token: str = ""
    batch: int = 0
    logged: int = 0
    entries: int = 0
    log_sum: int = 0
    saved: int = 0
    saved_commands: int = 0
    commands: int = 0
    commanded: str = ""
    prints_sum: int = 0
    program: str = ""
    version: int = 1

    def written(self) -> str:
        return seal_json(asdict(self))

    @staticmethod
    def read(text: str) -> Head:
        found = unseal_json(text, _STATE, hint=_ANEW)
        return Head(**{each.name: found[each.name] for each in fields(Head) if each.name in found})


@dataclass(frozen=True, slots=True)
class Stored:
    """What an engine is rebuilt from: all commands, the snapshot, and the log since; checked."""

    commands: list[str]
    saved: bytes
    log: list[Entry]


class StateVariables(Protocol):
    """The state of the instance whose rows a task has, by its variables."""

    def head(self) -> Head | None:
        """The head; None if the instance is new."""

    def prints(self, head: Head) -> dict[str, str]:
        """The fingerprints of the queries, by their names."""

    def commands(self, head: Head) -> list[str]:
        """All commands."""

    def stored(self, head: Head) -> Stored:
        """All but the head."""

    def replace(self, saved: bytes, commands: Sequence[str]) -> None:
        """Have a snapshot and its commands instead of all that there was."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Add to the log, and to the commands those that are in these entries."""

    def write_head(self, head: Head, prints: Mapping[str, str]) -> None:
        """Write the head and the fingerprints, last of all."""


def state_variables(handle: StatefulProcessorHandle, layout: int) -> StateVariables:
    """The variables of a layout, declared."""
    return FiveVariables(handle) if layout == FIVE_VARIABLES else TwoVariables(handle)


class FiveVariables:
    """The layout of releases up to 0.2: a variable for each part, commands both in the log and in a list of all."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "head string")
        self._queries = handle.getValueState("queries", "prints string")
        self._commands = handle.getListState("commands", "command string")
        self._log = handle.getListState("log", "batch long, stream int, place string, block binary, command string")
        self._snapshot = handle.getListState("snapshot", "chunk binary")
        self._prints_sum = 0
        """The checksum of the fingerprints that are there."""

    def head(self) -> Head | None:
        known = self._head.get()
        head = Head.read(known[0]) if known else None
        self._prints_sum = 0 if head is None else head.prints_sum
        return head

    def prints(self, head: Head) -> dict[str, str]:
        known = self._queries.get()
        return checked_prints(known[0], head) if known else {}

    def commands(self, head: Head) -> list[str]:
        return checked_commands(self._commands.get(), head) if head.commands else []

    def stored(self, head: Head) -> Stored:
        saved = b"".join(bytes(chunk) for (chunk,) in self._snapshot.get()) if head.saved else b""
        log = checked_log(self._log.get(), head) if head.token else []
        return Stored(self.commands(head), checked_snapshot(saved, head), log)

    def replace(self, saved: bytes, commands: Sequence[str]) -> None:
        self._snapshot.clear()
        for chunk in _chunks(saved):
            self._snapshot.appendList([(chunk,)])
        self._log.clear()
        self._commands.clear()
        if commands:  # Spark takes no empty list
            self._commands.appendList([(command,) for command in commands])

    def append(self, entries: Sequence[Entry]) -> None:
        self._log.appendList([*entries])
        if commands := [(command,) for *_, command in entries if command is not None and not passes(command)]:
            self._commands.appendList(commands)

    def write_head(self, head: Head, prints: Mapping[str, str]) -> None:
        head, text = with_prints(head, prints)
        if head.prints_sum != self._prints_sum:
            self._queries.update((text,))
        self._head.update((head.written(),))


class TwoVariables:
    """A value with the head and the fingerprints, and a list of entries of three kinds: commands given before the
    snapshot, its chunks, and the log, in which the other commands are."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "head string, prints string")
        self._entries = handle.getListState(
            "entries", "kind string, batch long, stream int, place string, block binary, command string"
        )
        self._prints = ""
        """The fingerprints beside the head that was read last."""

    def head(self) -> Head | None:
        known = self._head.get()
        self._prints = known[1] if known else ""
        return Head.read(known[0]) if known else None

    def prints(self, head: Head) -> dict[str, str]:
        return checked_prints(self._prints, head)

    def commands(self, head: Head) -> list[str]:
        return self.stored(head).commands

    def stored(self, head: Head) -> Stored:
        return stored_entries(self._entries.get(), head)

    def replace(self, saved: bytes, commands: Sequence[str]) -> None:
        self._entries.clear()
        if commands:  # Spark takes no empty list
            self._entries.appendList([(_COMMAND, 0, -1, "", None, command) for command in commands])
        for chunk in _chunks(saved):
            self._entries.appendList([(_SNAPSHOT, 0, -1, "", chunk, None)])

    def append(self, entries: Sequence[Entry]) -> None:
        self._entries.appendList([(_ARRIVAL, *entry) for entry in entries])

    def write_head(self, head: Head, prints: Mapping[str, str]) -> None:
        head, text = with_prints(head, prints)
        self._head.update((head.written(), text))


def stored_entries(entries: Iterable[Any], head: Head) -> Stored:
    """What the entries of the second layout are, if they are those that were written."""
    before, chunks, log = list[str](), list[bytes](), list[Entry]()
    for kind, *entry in entries:
        match kind:
            case "command":
                before.append(entry[-1])
            case "snapshot":
                chunks.append(bytes(entry[-2]))
            case _:
                log.append(tuple(entry))
    since = [command for *_, command in log if command is not None and not passes(command)]
    commands = checked_commands([(command,) for command in (*before, *since)], head) if head.commands else []
    return Stored(commands, checked_snapshot(b"".join(chunks), head), checked_log(log, head))


def _chunks(saved: bytes) -> Iterable[bytes]:
    """A snapshot chunk by chunk, since Java has several copies of what it gets at once."""
    return (saved[at : at + CHUNK] for at in range(0, len(saved), CHUNK))


# ---------------------------------------------------------------- checksums


def with_prints(head: Head, prints: Mapping[str, str]) -> tuple[Head, str]:
    """A head with the checksum of fingerprints, and these as text."""
    text = json.dumps(prints)
    return replace(head, prints_sum=crc32(text.encode())), text


def checked_prints(text: str, head: Head) -> dict[str, str]:
    """The fingerprints of the queries, if they are those that were written."""
    if crc32(text.encode()) != head.prints_sum:
        raise _damaged("the queries are not those that were written")
    found: dict[str, str] = json.loads(text)
    return found


def checked_snapshot(saved: bytes, head: Head) -> bytes:
    """The snapshot, if it is as long as that which was written; it has a seal of its own."""
    if len(saved) != head.saved:
        raise _damaged("the snapshot is not the one that was written")
    return saved


def checked_log(log: Iterable[Entry], head: Head) -> list[Entry]:
    """What has arrived since the snapshot, if it is what was written."""
    entries = list(log)
    if len(entries) != head.entries or checksum_of(entries) != head.log_sum:
        raise _damaged("what has arrived since its snapshot is not what was written")
    return entries


def checked_commands(commands: Iterable[tuple[str]], head: Head) -> list[str]:
    """The commands, if they are those that were written."""
    found = [command for (command,) in commands]
    if hash_commands(found) != head.commanded:
        raise _damaged("the commands are not those that were written")
    return found


def checksum_of(entries: Iterable[Entry], before: int = 0) -> int:
    """A checksum of entries of the log, behind others that have one."""
    for batch, stream, sequence, block, command in entries:
        before = crc32(json.dumps([batch, stream, sequence, block is None, command]).encode(), before)
        before = before if block is None else crc32(block, before)
    return before


def _damaged(how: str) -> Damaged:
    return Damaged(f"{_STATE} is damaged: {how}", hint=_ANEW)
