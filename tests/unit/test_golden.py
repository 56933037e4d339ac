"""Snapshots that releases have written are opened by every later one; `tests.golden.make` writes them."""

from __future__ import annotations

import json
from gzip import decompress
from pathlib import Path

import pytest

from cqels.engine.state import snapshot

from ..golden import make

RELEASES = sorted(path for path in make.HERE.iterdir() if path.is_dir() and path.name[0].isdigit())


@pytest.mark.parametrize("same", [True, False], ids=["as-it-is", "rebuilt"])
@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_a_snapshot_of_a_release_goes_on(folder: Path, *, same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where layouts have changed since then."""
    if not same:
        monkeypatch.setattr(snapshot, "layouts", lambda: "others")
    data = decompress((folder / "engine.snapshot.gz").read_bytes())
    with make.engine() as engine:
        engine.restore(data)
        make.feed(engine, 10 * make.COUNT)
        found = make.sent(engine)
        assert found == json.loads(decompress((folder / "engine.json.gz").read_bytes()))
        with make.engine() as other:
            make.feed(other, 0)
            make.sent(other)
            make.feed(other, 10 * make.COUNT)
            assert found == make.sent(other)
