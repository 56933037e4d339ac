"""How rows of Spark's sources become elements: the public name of `spark/lift/row_lifts.py`, which needs Spark."""

from __future__ import annotations

from cqels.spark.lift.row_lifts import Lift, columns, csv, json, jsonld, nquads, ntriples, trig, turtle

__all__ = ["Lift", "columns", "csv", "json", "jsonld", "nquads", "ntriples", "trig", "turtle"]
