"""A worker and a driver are killed, and the files are what they would have been. `make chaos` kills many more."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from cqels.model.errors import CqelsError
from cqels.spark.session.java import find_java

from .chaos import chaos
from .kills import DRIVER, WORKER


@pytest.mark.chaos
@pytest.mark.parametrize("latency", ["normal", "low"])
def test_what_is_killed_changes_nothing(tmp_path: Path, latency: str) -> None:
    try:
        find_java()
    except CqelsError as error:
        pytest.skip(str(error))
    if not Path("/proc/self/environ").exists():
        pytest.skip("processes are found in /proc")
    report = chaos(tmp_path, elements=1500, batch_bytes=18_000, times={WORKER: 1, DRIVER: 1}, seed=3, latency=latency)
    assert report.right, str(report)
    assert report.times == {WORKER: 1, DRIVER: 1}
    assert report.story.recoveries
