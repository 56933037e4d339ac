"""`cqels init`: a small working project, copied from the folder `starter`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from cqels.model.errors import CqelsError

STARTER = Path(__file__).parent / "starter"
FILES = {
    "pipeline.toml": "what runs: streams, data, queries, sinks",
    "hot.rq": "the query: rooms that are too warm",
    "readings.csv": "the stream: a reading of a room in each line",
    "readings.toml": "the lifting template: how a reading becomes triples",
    "rooms.ttl": "static data: the limit of each room",
    "sensors.py": "appends readings all the time, for trying it out",
    "README.md": "how to run it",
}
"""What a project has, and what each file is."""


def make_project(folder: Path) -> None:
    """Write the files of a project into a folder, which is new or empty."""
    if folder.exists() and not folder.is_dir():
        raise CqelsError(f"{folder} is a file", hint="name a folder that is not there yet")
    if folder.is_dir() and any(folder.iterdir()):
        raise CqelsError(
            f"the folder {folder} is not empty, and is left as it is", hint="name one that is not there yet"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = (STARTER / name).read_text("utf-8")
            if name == "README.md":
                text = text.replace("{name}", folder.resolve().name)
            if name == "pipeline.toml" and find_spec("pyspark") is None:
                text = text.replace('engine = "spark"   ', 'engine = "embedded"').replace(
                    '# or "embedded": the same answers in one process, without Java',
                    "# or \"spark\", which pip install 'cqels[spark]' brings: the same answers on all cores",
                )
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CqelsError(f"{folder} cannot be written: {(error.strerror or str(error)).lower()}") from None
