"""The texts that name sinks: a scheme, an address, and settings behind it, as in `kafka://host/topic?exactly-once=false`.

The settings of a webhook stand behind `#`, which is never sent to a server; those of all others behind `?`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote

from cqels.model.errors import CqelsError
from cqels.model.redact import redacted
from cqels.model.time import SECOND, parse_duration

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):(?://)?(?P<rest>.*)", re.DOTALL)
_SETTINGS = re.compile(r"[a-z][a-z0-9.-]*(=[^&]*)?(&[a-z][a-z0-9.-]*(=[^&]*)?)*")
_IN_BRACES = re.compile(r"\{\?")
_FROM_ENVIRONMENT = "-env"
_WEB = ("http", "https")


class Settings:
    """The settings of a sink by their names: each is read once, and one that nobody reads is refused."""

    def __init__(self, place: str, given: Mapping[str, object]) -> None:
        self._place, self._given = place, dict(given)
        self._known: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            raise self._refused(name, value, "a text")
        return value

    def secret(self, name: str) -> str | None:
        """A text that may also be that of an environment variable, `password-env=NAME`, so that no file has it."""
        variable = self._take(f"{name}{_FROM_ENVIRONMENT}", None)
        if variable is None:
            return self.text(name) or None
        if str(variable) not in os.environ:
            raise CqelsError(f"{self._place}: there is no environment variable {variable}", hint=f"export {variable}=…")
        return os.environ[str(variable)]

    def flag(self, name: str, *, default: bool) -> bool:
        match self._take(name, default):
            case bool(value):
                return value
            case "" | "true" | "yes":
                return True
            case "false" | "no":
                return False
            case value:
                raise self._refused(name, value, "true or false")

    def number(self, name: str, default: int, *, least: int = 1, most: int | None = None) -> int:
        value = self._take(name, default)
        try:
            number = int(str(value))
        except ValueError:
            raise self._refused(name, value, "a whole number") from None
        if number < least or (most is not None and number > most):
            raise self._refused(name, value, f"at least {least}" + ("" if most is None else f" and at most {most}"))
        return number

    def seconds(self, name: str, default: float) -> float:
        value = self._take(name, None)
        if value is None:
            return default
        try:
            return parse_duration(str(value)) / SECOND
        except ValueError:
            raise self._refused(name, value, "a duration such as 10s") from None

    def choice(self, name: str, words: Iterable[str], default: str) -> str:
        value = self._take(name, default)
        if value not in (known := [*words]):
            raise self._refused(name, value, f"one of {', '.join(known)}")
        return str(value)

    def texts(self, name: str) -> dict[str, str]:
        """A table of texts."""
        value = self._take(name, {})
        if not isinstance(value, Mapping):
            raise self._refused(name, value, "a table")
        return {str(key): str(each) for key, each in value.items()}

    def dotted(self) -> dict[str, str]:
        """All settings with a dot in their names, which a client library has of its own."""
        names = [name for name in self._given if "." in name]
        plain = dict.fromkeys(name.removesuffix(_FROM_ENVIRONMENT) for name in names)
        return {name: value for name in plain if (value := self.secret(name)) is not None}

    def check(self) -> None:
        """Refuse settings that nobody has read."""
        for name in self._given:
            near = get_close_matches(name, self._known, n=1)
            known = [each for each in self._known if not each.endswith(_FROM_ENVIRONMENT)]
            there = f"there are {', '.join(known)}" if known else "there are none"
            raise CqelsError(
                f"{self._place} has no setting '{name}'", hint=f"did you mean {near[0]}?" if near else there
            )

    def _take(self, name: str, default: Any) -> Any:
        self._known.append(name)
        return self._given.pop(name, default)

    def _refused(self, name: str, value: object, taken: str) -> CqelsError:
        return CqelsError(f"{self._place}: {name} is '{value}', and that is not taken", hint=f"it is {taken}")


@dataclass(frozen=True, slots=True)
class SinkAddress:
    """A text that names a sink, taken apart; the scheme of a file or folder is empty."""

    scheme: str
    rest: str
    """What is behind the scheme, without the settings; the whole URL of a webhook."""
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """For messages: without settings and passwords."""
        if not self.scheme or self.scheme in _WEB:
            return redacted(self.rest)
        return redacted(f"{self.scheme}://{self.rest}")


def parse_address(text: str, schemes: Iterable[str]) -> SinkAddress:
    """Take a text apart; what has none of these schemes is a file or folder.

    >>> parse_address("kafka:one:9092/hot?exactly-once=false", ["kafka"])
    SinkAddress(scheme='kafka', rest='one:9092/hot', settings={'exactly-once': 'false'})
    >>> parse_address("results/?parts", ["kafka"]).settings
    {'parts': ''}
    """
    found = _SCHEME.fullmatch(text)
    if found is not None and found["scheme"] in schemes:
        scheme = found["scheme"]
        if scheme in _WEB:
            url, _, settings = text.partition("#")
            return SinkAddress(scheme, url, _settings(settings))
        # {?room} in a topic is no beginning of settings
        rest, _, settings = _IN_BRACES.sub("{\0", found["rest"]).partition("?")
        return SinkAddress(scheme, rest.replace("{\0", "{?"), _settings(settings.replace("{\0", "{?")))
    path, mark, settings = text.rpartition("?")
    if mark and path and _SETTINGS.fullmatch(settings):
        return SinkAddress("", path, _settings(settings))
    return SinkAddress("", text)


def unknown_scheme(text: str) -> str | None:
    """The scheme of a text that looks like a URL."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text)
    return None if found is None else found[1]


def _settings(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split("&") if each)
    return {name: unquote(value) for name, _, value in pairs}
