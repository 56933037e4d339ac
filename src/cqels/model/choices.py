"""The words that options with a choice take: on the command line, in pipeline files and in Python alike."""

from __future__ import annotations

from typing import Literal, TypeAlias

ResultFormat: TypeAlias = Literal["text", "csv", "jsonl", "ntriples", "nquads", "trig", "parquet"]
Dialect: TypeAlias = Literal["cqels-ql", "c-sparql", "rsp-ql", "sparqlstream", "streaming-sparql", "ep-sparql"]
Emission: TypeAlias = Literal["istream", "dstream", "rstream", "changes", "snapshot"]
Policy: TypeAlias = Literal["cqels", "window-close", "cqels-1"]
"""When a query is evaluated."""
EngineName: TypeAlias = Literal["spark", "embedded", "reference"]
Lost: TypeAlias = Literal["stop", "continue", "rebuild"]
"""What can be done where results that were written are gone."""
Changed: TypeAlias = Literal["stop", "skip", "reread"]
"""What can be done with a file that was replaced, shortened or removed."""
Placement: TypeAlias = Literal["buffers", "latency", "rotation"]
"""How the engine instance of a query is chosen."""
Latency: TypeAlias = Literal["normal", "low"]
"""How a pipeline on Spark is made: many engine instances in tasks, or one in the driver."""
Undelivered: TypeAlias = Literal["wait", "stop", "drop"]
"""What can be done where a server does not take results."""
Overflow: TypeAlias = Literal["block", "drop-oldest", "sample"]
"""What can be done with more elements than wait for a service to process them."""
LogFormat: TypeAlias = Literal["text", "json"]
"""How a service writes its log."""
