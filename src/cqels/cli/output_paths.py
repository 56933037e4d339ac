"""Where a run writes: nothing that it reads, and each kind of output to a place of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cqels.model.errors import CqelsError


def check_places(written: Mapping[str, str | Path | None], read: Iterable[str | Path]) -> None:
    """Refuse outputs, by the names of their options, that would overwrite each other or what is read."""
    files = {_real(each) for each in read}
    taken: dict[Path, str] = {}
    for option, place in written.items():
        if place is None or str(place).startswith("kafka:") or _is_device(Path(place)):
            continue
        real = _real(place)
        if real in taken:
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
