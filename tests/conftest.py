"""How the tests run: random ones are repeatable where CI runs them, and long ones run only when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "cqels",
    deadline=None,  # a query may be slow, and the first one loads the grammar
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("cqels")


ASKED_FOR = ("fuzz", "cluster", "kafka", "chaos")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of these markers out unless `-m` names them."""
    markers = [marker for marker in ASKED_FOR if marker not in (config.option.markexpr or "")]
    left_out = [item for item in items if any(map(item.get_closest_marker, markers))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session of Spark, one for all tests of a file."""
    pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
    from cqels.spark import start, stop
    from cqels.spark.session.spark_session import RENAMED_FILES

    session = start(master="local[2]", partitions=2, settings=RENAMED_FILES, brief=True)
    yield session
    stop(session)
