"""Streams, static files and results as bytes: what comes into the engine from files and what it writes."""

from cqels.io.declare import StreamDeclaration, StreamSettings, declare, parse_declaration, settings_of
from cqels.io.element import Element, Rejected, future_reason, late_reason
from cqels.io.load import read_graph
from cqels.io.read import merge, read_stream
from cqels.io.reject_log import RejectLog
from cqels.io.result_order import InTime
from cqels.io.results import RESULT_FORMATS, Result, ResultWriter, file_name, format_of_file, writer_for
from cqels.io.tally import Rejects, Tally

__all__ = [
    "RESULT_FORMATS",
    "Element",
    "InTime",
    "RejectLog",
    "Rejected",
    "Rejects",
    "Result",
    "ResultWriter",
    "StreamDeclaration",
    "StreamSettings",
    "Tally",
    "declare",
    "file_name",
    "format_of_file",
    "future_reason",
    "late_reason",
    "merge",
    "parse_declaration",
    "read_graph",
    "read_stream",
    "settings_of",
    "writer_for",
]
