"""All kinds of tries, by their names."""

from __future__ import annotations

from .answers import ANSWERS, LOADED
from .harness import Kind
from .input import INPUT
from .queries import MUTANTS, QUERIES
from .sequences import SEQUENCES
from .state import CHECKPOINTS, SNAPSHOTS
from .threads import SIGNALS, THREADS

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (INPUT, LOADED, ANSWERS, QUERIES, MUTANTS, SNAPSHOTS, CHECKPOINTS, THREADS, SIGNALS, SEQUENCES)
}
