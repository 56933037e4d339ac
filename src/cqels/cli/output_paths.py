"""Where a run writes: nothing that it reads, and each kind of output to a place of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from cqels.ingest.input_files import files_of
from cqels.ingest.live_sources import is_live
from cqels.model.errors import CqelsError, DataError
from cqels.option_tables import DeclaredSink, is_url
from cqels.options import PipelineOptions


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


def places_read(options: PipelineOptions) -> Iterator[str | Path]:
    """The files and folders that streams and static data are read from."""
    for declaration in options.input.stream:
        if is_live(declaration):
            continue
        yield declaration.path
        with suppress(DataError):  # there may be none yet
            yield from files_of(declaration.path)
    yield from (each.path for each in options.dataset.data)


def check_table(sink: DeclaredSink, format: str, names: Iterable[str]) -> None:
    """Refuse one file of CSV for the results of several queries: their columns differ."""
    count = sum(map(sink.takes, names))
    if count > 1 and format == "csv" and sink.is_file and not sink.is_folder:
        raise CqelsError(
            f"{sink.to} is one table, and there are {count} queries",
            hint="name a folder, as results/, or a file whose lines name their query, as results.jsonl",
        )


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
