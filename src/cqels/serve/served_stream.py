"""A stream of a service as it is declared: by a request, by its first use, or in the file of the service's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args
from typing import Literal as OneOf

from cqels.ingest import StreamSettings
from cqels.ingest.declarations import FUTURE
from cqels.model.choices import Overflow
from cqels.model.errors import CqelsError
from cqels.model.sizes import parse_size
from cqels.model.time import parse_duration, unit_nanoseconds

Clock = OneOf["event", "arrival"]
INBOX = "1GB"
"""What waits to be processed at most, if nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStream:
    """The words of `PUT /streams/{name}`, as they are written; each has a default."""

    clock: Clock = "event"
    """The time of an element: what it carries, or if it carries none when it arrived; or always when it arrived."""
    lateness: str = "0s"
    idle: str = "0s"
    time: str | None = None
    """The predicate whose object is an element's time."""
    unit: str = "ms"
    """What integers that are times count."""
    template: str | None = None
    """The lifting template of JSON and CSV, as the text of its file."""
    overflow: Overflow = "block"
    """What to do with more elements than the inbox takes."""
    inbox: str = INBOX
    """Bytes of elements that wait to be processed at most."""

    @classmethod
    def read(cls, words: object) -> ServedStream:
        """From JSON; a word that there is not, or a value that is not taken, is refused."""
        if not isinstance(words, Mapping):
            raise CqelsError("a stream is declared by a JSON object", hint='as {"clock": "arrival"}')
        known = {each.name for each in fields(cls)}
        for word, value in words.items():
            if word not in known:
                raise CqelsError(f"a stream has no '{word}'", hint=f"there are {', '.join(sorted(known))}")
            if not isinstance(value, str) and not (value is None and word in ("time", "template")):
                raise CqelsError(f"the value of '{word}' is a text")
        made = cls(**words)
        made.check()
        return made

    def check(self) -> None:
        _one_of("clock", self.clock, get_args(Clock))
        _one_of("overflow", self.overflow, get_args(Overflow))
        for word in ("lateness", "idle"):
            try:
                parse_duration(getattr(self, word))
            except ValueError as error:
                raise CqelsError(f"{word}: {error}", hint="a time as in 2s") from None
        if unit_nanoseconds(self.unit) is None:
            raise CqelsError(f"'{self.unit}' is not a unit of time", hint="the units are ns, us, ms, s, m, h, d, w")
        if self.inbox_bytes < 1 << 16:
            raise CqelsError(f"an inbox of {self.inbox} is too small", hint="at least 64KB")

    @property
    def inbox_bytes(self) -> int:
        try:
            return parse_size(self.inbox)
        except ValueError as error:
            raise CqelsError(f"inbox: {error}", hint="a size as in 1GB") from None

    @property
    def future(self) -> int | None:
        return None if self.clock == "arrival" else FUTURE

    def settings(self, iri: str) -> StreamSettings:
        return StreamSettings(
            iri, parse_duration(self.lateness), parse_duration(self.idle), self.clock == "arrival", self.unit
        )

    def written(self) -> dict[str, Any]:
        return asdict(self)


def declared_streams(entries: Sequence[Mapping[str, object]], otherwise: ServedStream) -> dict[str, ServedStream]:
    """Those of a pipeline file, by their names; a template is the name of its file, or its text."""
    made: dict[str, ServedStream] = {}
    for entry in entries:
        words = {str(word).replace("-", "_"): value for word, value in entry.items()}
        name = str(words.pop("name"))
        template = words.get("template")
        if isinstance(template, str) and template.endswith(".toml") and "\n" not in template:
            words["template"] = _text(Path(template))
        try:
            made[name] = ServedStream.read({"overflow": otherwise.overflow, "inbox": otherwise.inbox} | words)
        except CqelsError as error:
            raise CqelsError(f"stream {name}: {error.message}", hint=error.hint) from None
    return made


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = (getattr(error, "strerror", None) or "it is not UTF-8").lower()
        raise CqelsError(f"the template {path} cannot be read: {reason}") from None


def _one_of(word: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise CqelsError(f"'{value}' is no {word}", hint=f"it is one of {', '.join(choices)}")
