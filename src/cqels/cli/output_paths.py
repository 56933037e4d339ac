"""Where a run writes: nothing that it reads, and each kind of output to a place of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cqels.model.errors import CqelsError
from cqels.option_tables import is_url


def check_places(written: Iterable[tuple[str, str | Path | None]], read: Iterable[str | Path]) -> None:
    """Refuse outputs, by the names of their options, that would overwrite each other or what is read."""
    files = {_real(each) for each in read}
    taken: dict[Path, str] = {}
    for option, place in written:
        if place is None or is_url(str(place)) or _is_device(Path(place)):
            continue
        real = _real(place)
        if real in taken:
            if option == taken[real]:
                raise CqelsError(f"{place} is the place of two sinks", hint="give each a place of its own")
            raise CqelsError(f"{taken[real]} and {option} are one file: {place}", hint="give each a file of its own")
        if real in files:
            raise CqelsError(f"{option} {place} would overwrite what is read", hint="choose another place")
        taken[real] = option


def _real(place: str | Path) -> Path:
    try:
        return Path(place).resolve()
    except (OSError, RuntimeError, ValueError):  # whoever opens it says what is wrong
        return Path(place)


def _is_device(place: Path) -> bool:
    """A pipe, a terminal, /dev/null."""
    try:
        return place.exists() and not place.is_file() and not place.is_dir()
    except (OSError, ValueError):
        return False
