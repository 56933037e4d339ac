"""How the rows of a source become elements: the public name of `pipeline/lift/row_lifts.py`."""

from __future__ import annotations

from cqels.pipeline.lift.row_lifts import Lift, columns, csv, json, jsonld, nquads, ntriples, trig, turtle

__all__ = ["Lift", "columns", "csv", "json", "jsonld", "nquads", "ntriples", "trig", "turtle"]
