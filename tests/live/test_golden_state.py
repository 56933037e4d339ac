"""The state of a live run that a release has written goes on under every later one."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from cqels.engine.state import snapshot

from ..golden import live_states
from ..golden.make import HERE

RELEASES = sorted(path.parent for path in HERE.glob(f"*/{live_states.ARCHIVE}"))


@pytest.mark.parametrize("same", [True, False], ids=["as-it-is", "rebuilt"])
@pytest.mark.parametrize("release", [None, *RELEASES], ids=lambda each: "this" if each is None else each.name)
def test_a_state_of_a_release_goes_on(
    release: Path | None, *, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where layouts have changed since then."""
    archive = tmp_path / live_states.ARCHIVE if release is None else release / live_states.ARCHIVE
    if release is None:
        live_states.write(archive)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    if not same:
        monkeypatch.setattr(snapshot, "layouts", lambda: "others")
    expected = json.loads((tmp_path / "expected.json").read_text())
    instance = live_states.opened(tmp_path / "state")
    assert instance.batch == 2
    assert instance.last is not None
    assert instance.last.note == {"positions": {"a": 2}}
    assert live_states.chunks(instance.last) == expected["last"]
    assert live_states.chunks(live_states.last_batch(instance)) == expected["next"]
    assert all(each[3] for each in expected["next"])
    instance.close()
