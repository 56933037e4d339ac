"""What queries send: results, their order, and the formats in which they are written."""

from cqels.results.result import RESULT_FORMATS, Result, ResultWriter, file_name, format_of_file, writer_for
from cqels.results.result_order import InTime

__all__ = ["RESULT_FORMATS", "InTime", "Result", "ResultWriter", "file_name", "format_of_file", "writer_for"]
