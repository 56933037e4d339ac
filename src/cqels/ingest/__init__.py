"""From bytes to elements: formats, lifting templates, files, and the encoding of elements as batches of words.

Used by the embedded engine and by Spark's workers alike.  What is exported here knows nothing of words: the reference
engine reads with it too.
"""

from cqels.ingest.dataset_files import read_graph
from cqels.ingest.declarations import StreamDeclaration, StreamSettings, declare, parse_declaration, settings_of
from cqels.ingest.element import Element, Rejected, future_reason, late_reason, promise_reason
from cqels.ingest.reject_log import RejectLog
from cqels.ingest.stream_files import merge, read_stream
from cqels.ingest.tally import Rejects, Tally

__all__ = [
    "Element",
    "RejectLog",
    "Rejected",
    "Rejects",
    "StreamDeclaration",
    "StreamSettings",
    "Tally",
    "declare",
    "future_reason",
    "late_reason",
    "merge",
    "parse_declaration",
    "promise_reason",
    "read_graph",
    "read_stream",
    "settings_of",
]
