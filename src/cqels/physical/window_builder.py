"""The windows of a query in the arena: graphs of streams as queues of changed triples, and what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyoxigraph import NamedNode

from cqels.kernels import scheduler
from cqels.kernels.operators import star_window, window
from cqels.kernels.operators.outer_semi_anti_join import ANTI_JOIN
from cqels.kernels.operators.payload_time_window import make_payload_window
from cqels.lang.expressions import Var
from cqels.lang.syntax import All, Count, Now, Range, Window
from cqels.model.errors import ArenaFull
from cqels.physical.operator_builder import Operators
from cqels.physical.pipeline import Kept, Stage, Table, WholeGraph, has_payload_time
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Source

_TRIPLE = ("subject", "predicate", "object")
_IN_TURN = {window.NOW, window.RANGE, window.SLIDE, window.TRIPLES, window.ELEMENTS}
"""From windows of these kinds triples go in the order in which they came."""
_STAMPED = window.FRESH | window.PLACES


@dataclass
class Windows(Operators):
    """The windows of one query, and the tables that are merged into them."""

    windows: list[tuple[int, int, int]] = field(default_factory=list)
    slides: list[int] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    matches: dict[int, algebra.Triple] = field(default_factory=dict)
    """Queue of a pattern's mappings to the pattern."""
    patterns: dict[int, list[int]] = field(default_factory=dict)
    """Offset of a window to the patterns that read it."""
    _readers: dict[int, list[int]] = field(default_factory=dict)
    """Queue of a graph to the list of its patterns, which the windows merged into it share."""
    _merged: dict[int, tuple[tuple[Source, ...], tuple[NamedNode, ...]]] = field(default_factory=dict)
    """Queue of a graph to what is merged into it."""

    def graph(self, sources: tuple[Source, ...], graphs: tuple[NamedNode, ...]) -> int:
        """The queue of the changes of a merged graph: a triple that several bring is there once, the newest of them.

        Where events are told apart it is there once for each element that brought it.
        """
        readers: list[int] = []
        windows = [Stage(self._window(source, readers), _TRIPLE) for source in sources]
        tables = [self.table(WholeGraph(name), _TRIPLE) for name in graphs]
        whole = windows[0] if len(windows) == 1 else self.united(windows)
        if self.events and tables:
            never_came = self.negation(ANTI_JOIN, self.once(self.united(tables), fresh=False), whole)
            whole = self.united([whole, never_came])
        elif len(windows) + len(tables) > 1 and not self.events:
            whole = self.once(self.united([*windows, *tables]), fresh=self.fresh)
        self._readers[whole.queue] = readers
        self._merged[whole.queue] = sources, graphs
        return whole.queue

    def eventful(self, graph: int) -> int:
        """The same graph, where every occurrence of a triple is an event of its own."""
        return self.graph(*self._merged[graph])

    def calm(self, graph: int) -> int:
        """The same graph, where a triple is there once, as new as its newest occurrence."""
        if not self.events:
            return graph
        queue = self.once(Stage(graph, _TRIPLE), fresh=True).queue
        self._readers[queue], self._merged[queue] = self._readers[graph], self._merged[graph]
        return queue

    def kept(self, source: Source) -> Kept:
        """A window with all its triples, to be read by Python."""
        seen_at = self.words([0]) if has_payload_time(source) else 0
        offset, slide = self._make(source, self.queue(3), window.OWN_TIME if seen_at else 0)
        return Kept(offset, slide, seen_at)

    def table(self, plan: Plan, names: tuple[str, ...], nullable: frozenset[str] = frozenset()) -> Stage:
        """A queue that Python feeds with the changes of a static part."""
        stage = Stage(self.queue(len(names)), names, nullable)
        self.tables.append(Table(plan, stage))
        return stage

    def matched(self, triple: algebra.Triple, graph: int) -> Stage:
        """The mappings of a triple pattern over a graph's queue, or over any queue of three columns."""
        nodes = (triple.subject, triple.predicate, triple.object)
        names = tuple(dict.fromkeys(node.name for node in nodes if isinstance(node, Var)))
        words: list[int] = []
        for position, node in enumerate(nodes):
            if isinstance(node, Var):
                first = next(index for index, other in enumerate(nodes) if other == node)
                words += [0, first, names.index(node.name) if first == position else -1]
            else:
                words += [self.calls.word_of(node), position, -1]
        pattern = self.words(words)
        if graph in self._readers:
            self._readers[graph].append(pattern)
        out = self.queue(len(names))
        self.add(scheduler.MATCH, self.words([graph, pattern, out]))
        self.matches[out] = triple
        in_turn, timeless = self._kinds_of(graph)
        return Stage(out, names, in_turn=in_turn, timeless=timeless)

    def _kinds_of(self, graph: int) -> tuple[bool, bool]:
        """Whether a graph is that of one window, from which triples go in turn; and whether of one without times."""
        words = self.arena.words
        offsets = [offset for _, offset, _ in self.windows if words[offset + window.QUEUE] == graph]
        in_turn = all(words[offset + window.KIND] in _IN_TURN for offset in offsets)
        timed = any(words[offset + window.FLAGS] & _STAMPED for offset in offsets)
        return bool(offsets) and in_turn, bool(offsets) and not timed

    def starred(self, plan: algebra.Triples, graph: int, stage: Stage) -> Stage:
        """The solutions of patterns that alone read a graph: if they are about one subject, its window has a star."""
        _, graphs = self._merged[graph]
        (offset, *others) = [at for at, readers in self.patterns.items() if readers is self._readers[graph]]
        kind = int(self.arena.words[offset + window.KIND])
        stage = replace(stage, in_turn=kind != window.ALL)  # where nothing ever goes
        if others or graphs or self.events or self.keep_all or not is_star(plan.patterns) or kind >= window.TRIPLES:
            return stage
        columns = {Var(name): number for number, name in enumerate(stage.columns)}
        words = [0] * star_window.FIRST_PATTERN
        words[star_window.PATTERNS], words[star_window.SOLUTIONS] = len(plan.patterns), stage.queue
        for triple in plan.patterns:
            assert isinstance(triple.subject, Var)
            assert isinstance(triple.predicate, NamedNode)
            words[star_window.SUBJECT_COLUMN] = columns[triple.subject]
            words.append(self.calls.word_of(triple.predicate))
            match triple.object:
                case Var() as variable:
                    words += [0, columns[variable]]
                case term:
                    words += [self.calls.word_of(term), -1]
        self.arena.words[offset + window.STAR] = made = self.words(words)
        if not star_window.open_star(self.arena.base, made):
            raise ArenaFull
        return stage

    def _window(self, source: Source, readers: list[int]) -> int:
        queue = self.queue(3)
        flags = (window.FRESH if self.fresh else 0) | (window.EVENTS if self.events else 0)
        flags |= window.PLACES if self.by_position else 0
        match source.window:
            case Range(width=width, slide=slide, time=predicate) if predicate is not None:
                word = self.calls.word_of(predicate)
                made = make_payload_window(self.arena.base, width, int(slide is not None), flags, queue, word)
                offset = self.taken(made)
                self._open(source, offset, slide)
            case _:
                offset, _ = self._make(source, queue, flags)
        self.patterns[offset] = readers
        return queue

    def _make(self, source: Source, queue: int, flags: int) -> tuple[int, int]:
        """A new window, and the number of its slide or -1."""
        kind, width, slide = _shape(source.window)
        offset = self.taken(window.make_window(self.arena.base, kind, width, flags, queue))
        return offset, self._open(source, offset, slide)

    def _open(self, source: Source, offset: int, slide: int | None) -> int:
        """Let a window read its streams: the number of its slide or -1."""
        number = -1
        if slide is not None:
            if slide not in self.slides:
                self.slides.append(slide)
            number = self.slides.index(slide)
        assert isinstance(source.stream, NamedNode | None)
        for iri, stream in self.streams.items():
            if source.stream is None or source.stream.value == iri:
                self.windows.append((stream, offset, number))
        return number

    def keep_matching(self) -> None:
        """Tell each window which patterns read it: a triple that none of them matches is not kept."""
        for offset, patterns in self.patterns.items():
            if patterns:
                words = np.concatenate([self.arena.array(each, window.PATTERN_WORDS) for each in patterns])
                self.arena.words[offset + window.PATTERNS] = self.words([int(word) for word in words])
                self.arena.words[offset + window.PATTERN_COUNT] = len(patterns)


def is_star(patterns: Sequence[algebra.Triple]) -> bool:
    """Whether patterns ask for objects of one subject, each by a predicate of its own, into a variable of its own."""
    subject = patterns[0].subject
    named = [each.object for each in patterns if isinstance(each.object, Var)]
    predicates = {each.predicate for each in patterns}
    return (
        2 <= len(patterns) == len(predicates) <= star_window.MOST_PATTERNS
        and isinstance(subject, Var)
        and all(each.subject == subject and not isinstance(each.predicate, Var) for each in patterns)
        and len({subject, *named}) == 1 + len(named)
    )


def _shape(chosen: Window) -> tuple[int, int, int | None]:
    """The kind, the width and the slide. What Python chooses from is a window of everything."""
    match chosen:
        case Now():
            return window.NOW, 0, None
        case Range(slide=slide, time=predicate) if predicate is not None:
            return window.ALL, 0, slide
        case Range(width=width, slide=None):
            return window.RANGE, width, None
        case Range(width=width, slide=slide):
            return window.SLIDE, width, slide
        case Count(size=size, unit="triples"):
            return window.TRIPLES, size, None
        case Count(size=size, unit="elements"):
            return window.ELEMENTS, size, None
        case All() | Count():
            return window.ALL, 0, None
        case _:
            raise AssertionError(f"no window {chosen}")
