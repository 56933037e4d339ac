"""How the values of options are read and checked, one by one; the options themselves live in `cqels.options`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias, get_args

from cqels.model.errors import CqelsError
from cqels.model.sizes import parse_size
from cqels.model.time import parse_duration, parse_time

Naming: TypeAlias = Callable[[str, str], str]
"""How the user wrote an option, from its group and its name: errors name it so."""
Reader: TypeAlias = Callable[[str, object], Any]
"""Reads a value, given the option as the user wrote it; raises a `CqelsError`, or a `ValueError` with the reason."""
Words: TypeAlias = tuple[str | int, ...]
"""The words that lead to a value, as the user wrote them, with the numbers of the entries of lists."""
Told: TypeAlias = Callable[[Words, CqelsError], None]
"""What is done with an error, and the words that lead to it."""


class NoSuchWord(CqelsError):
    """A word that is no option; else what is wrong is a value."""


def in_a_file(table: str, name: str) -> str:
    """An option as a pipeline file has it.

    >>> in_a_file("pipeline", "allow_load")
    'pipeline.allow-load'
    """
    return f"{table}.{name.replace('_', '-')}" if name else table


def on_the_command_line(table: str, name: str) -> str:
    """An option as the command line has it.

    >>> on_the_command_line("pipeline", "allow_load")
    '--allow-load'
    >>> on_the_command_line("sinks", "")
    '--out'
    """
    return f"--{name.replace('_', '-')}" if name else {"streams": "--stream", "sinks": "--out"}.get(table, f"--{table}")


def raised(words: Words, error: CqelsError) -> None:
    raise error


def refused(option: str, value: object, taken: str) -> CqelsError:
    """The error of a value of a type that is not taken."""
    kinds = {bool: "true or false", str: "a text", list: "a list", tuple: "a list", dict: "a table"}
    kind = kinds.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
    return CqelsError(f"{option} is {kind}, and that is not taken", hint=f"it is {taken}")


def text_of(option: str, value: object) -> str:
    if not isinstance(value, str):
        raise refused(option, value, "a text")
    return value


def path_of(option: str, value: object) -> Path:
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise refused(option, value, "the path of a file or folder")
    return Path(value)


def flag_of(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise refused(option, value, "true or false")
    return value


def count_of(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(option, value, "a whole number")
    if value < 1:
        raise ValueError(f"{value} is less than 1")
    return value


def number_of(option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(option, value, "a number")
    return float(value)


def rate_of(option: str, value: object) -> float:
    """A number above 0: nothing goes backwards, or stands still for ever."""
    number = number_of(option, value)
    if not 0 < number < float("inf"):
        raise CqelsError(f"{option}: {number:g} is not a number above 0", hint="1 is the pace of the times, 60 faster")
    return number


def time_of(option: str, value: object) -> int:
    """Nanoseconds since 1970; a number alone would not say of what."""
    if not isinstance(value, str | datetime):
        raise refused(option, value, "a time such as 40s or 2026-01-31T12:00:00Z")
    try:
        return parse_time(value)
    except ValueError as error:
        raise CqelsError(f"{option}: {error}", hint="write for example 40s or 2026-01-31T12:00:00Z") from None


def duration_of(option: str, value: object) -> int:
    if not isinstance(value, str):
        raise refused(option, value, "a duration such as 10s")
    return parse_duration(value)


def interval_of(option: str, value: object) -> int:
    length = duration_of(option, value)
    if length <= 0:
        raise CqelsError(f"{option}: the interval is not longer than 0", hint=f"{option} 5m")
    return length


def size_of(option: str, value: object) -> int:
    if not isinstance(value, str):
        raise refused(option, value, "a size such as 32MB")
    return parse_size(value)


def port_or_file(option: str, value: object) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else str(path_of(option, value))


def choice_of(literal: Any, problem: str = "{option}: '{value}' is not one of its values") -> Reader:
    """One of the words of a `Literal`."""
    words = get_args(literal)

    def read(option: str, value: object) -> str:
        if value not in words:
            message = problem.format(option=option, value=text_of(option, value))
            raise CqelsError(message, hint=meant(str(value), words, f"there are {', '.join(words)}"))
        return str(value)

    return read


def several(read: Reader) -> Reader:
    """One value, or a list of them."""

    def read_all(option: str, value: object) -> tuple[Any, ...]:
        values = value if isinstance(value, list | tuple) else [value]
        return tuple(read(option, each) for each in values)

    return read_all


def hosts_of(option: str, value: object) -> tuple[str, ...]:
    """Hosts, in a list or with commas between them."""
    texts = several(text_of)(option, value)
    return tuple(each for text in texts for each in text.split(",") if each.strip())


def settings_of(option: str, value: object) -> tuple[tuple[str, str], ...]:
    """Settings of Spark: texts such as `spark.driver.memory=4g`, or a table."""
    if isinstance(value, Mapping):
        return tuple((str(key), str(each)) for key, each in value.items())
    pairs = []
    for text in several(text_of)(option, value):
        key, separator, setting = text.partition("=")
        if not separator or not key:
            hint = f"write {option} spark.driver.memory=4g"
            raise CqelsError(f"{option} {text}: this is not a setting", hint=hint)
        pairs.append((key.strip(), setting.strip()))
    return tuple(pairs)


def meant(word: str, known: Iterable[str], otherwise: str) -> str:
    near = get_close_matches(word, [*known], n=1)
    return f"did you mean {near[0]}?" if near else otherwise


def read_words(
    table: str, mapping: object, readers: Mapping[str, Reader], named: Naming, path: Words, told: Told
) -> dict[str, Any]:
    """The values of a table, by the names of fields: its words have dashes or underscores."""
    if not isinstance(mapping, Mapping):
        told(path, refused(named(table, ""), mapping, "a table"))
        return {}
    shown = [each.replace("_", "-") for each in readers]
    values: dict[str, Any] = {}
    for word, value in mapping.items():
        plain, at = str(word).replace("_", "-"), (*path, word)
        name = plain.replace("-", "_")
        if name not in readers:
            hint = meant(plain, shown, f"there are {', '.join(shown)}")
            told(at, NoSuchWord(f"{table} has no option '{word}'", hint=hint))
        elif name in values:
            told(at, NoSuchWord(f"{table} has the option '{plain}' twice", hint="remove one"))
        else:
            option = named(table, name)
            try:
                values[name] = readers[name](option, value)
            except ValueError as error:
                told(at, CqelsError(f"{option}: {error}"))
            except CqelsError as error:
                told(at, error)
    return values
