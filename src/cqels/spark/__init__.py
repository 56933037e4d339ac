"""Continuous queries on Spark. Nothing here is imported, and no Java looked for, before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cqels.spark.driver.app import App
    from cqels.spark.session.spark_session import start, stop

__all__ = ["App", "start", "stop"]

_PLACES = {
    "App": "cqels.spark.driver.app",
    "start": "cqels.spark.session.spark_session",
    "stop": "cqels.spark.session.spark_session",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'cqels.spark' has no attribute '{name}'")
    from importlib import import_module

    from cqels.spark.session.spark_session import check_installed

    check_installed()
    return getattr(import_module(_PLACES[name]), name)
