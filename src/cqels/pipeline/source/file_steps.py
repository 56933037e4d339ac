"""How far a batch goes in the files of several streams: the decision of Spark's driver and of a live run."""

from __future__ import annotations

from math import ceil

from cqels.pipeline.source.file_catalog import Catalog, Offsets


def advance_all(catalog: Catalog, start: Offsets, size: int | None, *, follow: bool) -> Offsets:
    """The offsets `size` bytes on in all streams together, so that all streams end at about the same time.

    Streams whose files are all known go to the same share of their bytes each; one that is ahead, since a file is read
    whole, waits.  Where more files may come (`follow`), each goes on by the same share of what it has left.
    """
    done = {number: catalog.size(number, offset) for number, offset in start.items()}
    sizes = {number: catalog.size(number) for number in start}
    left = sum(sizes.values()) - sum(done.values())
    if size is None or size >= left:
        return {number: catalog.advance(number, offset, sizes[number]) for number, offset in start.items()}
    if follow:
        steps = {number: ceil(size * (sizes[number] - done[number]) / left) for number in start}
    else:
        part = (sum(done.values()) + size) / sum(sizes.values())
        steps = {number: ceil(part * sizes[number]) - done[number] for number in start}
    return {number: catalog.advance(number, offset, steps[number]) for number, offset in start.items()}
