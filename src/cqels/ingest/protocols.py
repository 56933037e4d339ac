"""What a new source or a new format has to offer; none of them lives here.

A source brings bytes and knows nothing of their meaning; a format turns lines into elements wherever they come from.  A
new source is one module with a class like `Source`, and one line in `cqels.ingest.live_sources`; a new format of lines
is one function like `Format`, and one line in `cqels.ingest.line_formats`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.element import Element
from cqels.ingest.element_grouping import Reject

if TYPE_CHECKING:
    from cqels.ingest.lifting_template import Template


class Source(Protocol):
    """Where the bytes of a declared stream come from: a file, standard input, a broker."""

    @property
    def place(self) -> str:
        """What it is called where one of its lines is rejected: `place:number`."""

    def chunks(self) -> Iterator[bytes]:
        """Whole lines from the first on, without a byte order mark; ends with the input.

        A live source waits until there is a line, and then gives all that have arrived.
        """


class Format(Protocol):
    """How lines become elements."""

    def __call__(
        self,
        declaration: StreamDeclaration,
        place: str,
        lines: Iterable[tuple[int, str]],
        template: Template | None,
        reject: Reject,
    ) -> Iterator[Element]:
        """The elements of numbered lines, read as they are asked for.

        What cannot become an element goes to `reject` with `place:number`.  Raises UnreadableFile if the lines are not
        what the declaration says.
        """
