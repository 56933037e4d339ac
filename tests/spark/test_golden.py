"""The state of engines on Spark that releases have written is opened by every later one."""

from __future__ import annotations

import json
from base64 import b64decode
from gzip import decompress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pip install 'cqels[spark]'")

from cqels.engine.state import snapshot
from cqels.model.errors import OtherLayouts
from cqels.model.release import RELEASE
from cqels.pipeline.instance.engine_instance import Instance
from cqels.pipeline.instance.instance_commands import registration
from cqels.pipeline.instance.program import Origin
from cqels.spark.operator.state_layouts import Head, checked_commands, checked_log

from ..golden import make
from ..unit.test_golden import RELEASES


def log_of(known: dict[str, Any]) -> list[tuple[int, int, str, bytes | None, str | None]]:
    return [(batch, stream, place, b64decode(block), command) for batch, stream, place, block, command in known["log"]]


@pytest.mark.parametrize("same", [True, False], ids=["as-it-is", "rebuilt"])
@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_the_state_of_a_release_goes_on(folder: Path, *, same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    known = json.loads(decompress((folder / "state.json.gz").read_bytes()))
    head = Head.read(known["head"])
    commands, log = checked_commands([(each,) for each in known["commands"]], head), checked_log(log_of(known), head)
    origin = Origin.read(b64decode(known["origin"]))
    assert [*origin.commands] == commands
    saved = b64decode(known["saved"])
    assert origin.saved == saved
    program = make.program()
    assert program.read().keys() == origin.prints.keys()
    if not same:
        monkeypatch.setattr(snapshot, "layouts", lambda: "others")
    instance = Instance.rebuild(program, commands, saved, log)
    instance.advance(make.arrivals(20 * make.COUNT))
    assert make.portions(instance) == known["sent"]


def test_what_is_too_large_to_be_rebuilt_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the release that can go on, and what else there is to do."""
    program = make.program()
    commands = [registration(query, print) for print, query in program.read().values()]
    instance = Instance(program, commands=commands)
    instance.advance(make.arrivals(0))
    with monkeypatch.context() as patch:
        patch.setattr("cqels.pipeline.instance.engine_instance.MOST_WORDS", 0)
        saved = instance.saved()
    Instance.rebuild(program, commands, saved)
    monkeypatch.setattr(snapshot, "layouts", lambda: "others")
    with pytest.raises(OtherLayouts, match="the state of an engine in the checkpoint was written by cqels") as refused:
        Instance.rebuild(program, commands, saved)
    assert refused.value.hint == (
        f"go on with cqels {RELEASE}, or begin with a new checkpoint, which reads files from their beginning"
    )


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_what_has_no_snapshot_yet_goes_on_whatever_the_layouts(folder: Path) -> None:
    """Blocks and commands do not depend on them."""
    known = json.loads(decompress((folder / "state.json.gz").read_bytes()))
    first = [(0, *each) for each in make.arrivals(0)]
    instance = Instance.rebuild(make.program(), known["commands"], b"", [*first, *log_of(known)])
    instance.advance(make.arrivals(20 * make.COUNT))
    assert make.portions(instance) == known["sent"]
