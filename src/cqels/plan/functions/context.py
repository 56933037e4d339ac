"""What an expression may know besides its solution: the tick's time, the seed of draws, what the engine answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from cqels.lang.expressions import Exists
from cqels.model.terms import Term


@dataclass(frozen=True, slots=True)
class Context:
    """Times are nanoseconds since 1970.

    - `now` is the tick's time: NOW() and cq:now() never read a clock.
    - `seed` tells the draws of one query from those of another (RAND, UUID, STRUUID, BNODE).
    - `identity` names the variables that tell solutions apart in a draw; None is all of them. An engine that adds
      variables to a solution one by one gives the variables from before, so that BNODE("a") stays the same node.
    - `interval` is from the oldest to the newest element that the solution used.
    - `exists` gives the truth of an EXISTS node for a solution, its negation included.
    - `timestamp` gives the time of the stream's triple (s, p, o), or None if there is no such triple.
    """

    now: int = 0
    seed: str = ""
    identity: Collection[str] | None = None
    interval: tuple[int, int] | None = None
    exists: Callable[[Exists, Mapping[str, Term]], bool] | None = None
    timestamp: Callable[[Term, Term, Term], int | None] | None = None
