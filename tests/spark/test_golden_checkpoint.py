"""Checkpoints on Spark that releases have written are gone on from by every later one."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from cqels.spark import start, stop
from cqels.spark.driver.metrics import Metrics
from cqels.spark.sinks import Files

from ..golden import checkpoints
from ..unit.test_golden import RELEASES

OTHER_LAYOUTS = """
from pathlib import Path
from cqels.kernels.memory import layout_hash

def other_layouts():
    Path(__file__).with_name("asked").touch()
    return "others"

layout_hash.layouts = other_layouts
"""
"""What a Python of Spark runs first, so that it has other layouts than any release."""


@pytest.fixture(scope="module", params=["as-it-is", "rebuilt"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of Spark in a folder of its own, in which its processes find files by relative paths."""
    folder = tmp_path_factory.mktemp("others")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "rebuilt":
            (folder / "sitecustomize.py").write_text(OTHER_LAYOUTS)
            patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        patch.chdir(tmp_path_factory.mktemp("golden"))
        session = start(master="local[2]", partitions=2)
        yield session
        stop(session)
        assert (folder / "asked").exists() == (request.param == "rebuilt")


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_a_checkpoint_of_a_release_goes_on(session: Any, folder: Path) -> None:
    for path in Path().iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with tarfile.open(folder / checkpoints.ARCHIVE) as archive:
        archive.extractall(filter="data")
    metrics = Metrics()
    app = checkpoints.app(session, batch=4 * checkpoints.BATCH)
    assert app.run(Files(checkpoints.RESULTS, "csv"), metrics=metrics).wait(600)
    assert metrics.totals.rebuilt == 4, "two engines that were there from the beginning, and two that queries moved to"
    assert checkpoints.results(checkpoints.RESULTS) == checkpoints.results(checkpoints.EXPECTED)
