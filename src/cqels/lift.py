"""How rows of Spark's sources become elements: the public name of `cqels.spark.lift`, which needs Spark's libraries."""

from __future__ import annotations

from cqels.spark.lift import Lift, columns, csv, json, jsonld, nquads, ntriples, trig, turtle

__all__ = ["Lift", "columns", "csv", "json", "jsonld", "nquads", "ntriples", "trig", "turtle"]
