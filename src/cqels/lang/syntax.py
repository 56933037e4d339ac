"""The syntax tree of a query: what was written, with its places, before any meaning is given to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from pyoxigraph import NamedNode

from cqels.lang.expressions import Expression, Var
from cqels.model.errors import Span
from cqels.model.terms import Term

Node: TypeAlias = Var | Term


# ---------------------------------------------------------------- windows


@dataclass(frozen=True, slots=True)
class Now:
    """`[NOW]`: the elements of the tick's own time."""


@dataclass(frozen=True, slots=True)
class All:
    """`[ALL]`: everything so far."""


@dataclass(frozen=True, slots=True)
class Range:
    """`[RANGE d]`, or `[RANGE d SLIDE s]` when `slide` is given; both in nanoseconds."""

    width: int
    slide: int | None = None
    time: NamedNode | None = None
    """The predicate whose object is the element's time in this window (`@<predicate>`)."""


@dataclass(frozen=True, slots=True)
class Count:
    """`[TRIPLES n]`, `[ELEMENTS n]`, or the latest n solutions for each value of the variables `by`."""

    size: int
    unit: str
    """`triples` or `elements`; `solutions` when `by` is not empty."""
    by: tuple[str, ...] = ()


Window: TypeAlias = Now | All | Range | Count


# ---------------------------------------------------------------- property paths


@dataclass(frozen=True, slots=True)
class Link:
    """One predicate."""

    iri: NamedNode


@dataclass(frozen=True, slots=True)
class Inverse:
    """`^path`"""

    path: Path


@dataclass(frozen=True, slots=True)
class Steps:
    """`first/second/…`"""

    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`one|other|…`"""

    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`path?` (`low` 0, once), `path*` (0, many), `path+` (1, many)."""

    path: Path
    low: int
    many: bool


@dataclass(frozen=True, slots=True)
class Negated:
    """`!(p|^q)`: any predicate but those named. Backward edges match only where the set names one (`^q`), and
    forward edges only where it names one or is empty."""

    forward: tuple[NamedNode, ...]
    backward: tuple[NamedNode, ...]


Path: TypeAlias = Link | Inverse | Steps | Choice | Repeat | Negated


# ---------------------------------------------------------------- patterns


@dataclass(frozen=True, slots=True)
class TriplePattern:
    """Subject, predicate or path, object."""

    subject: Node
    predicate: Var | Path
    object: Node
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Triples:
    """A block of triple patterns."""

    patterns: tuple[TriplePattern, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Group:
    """`{ … }`: its parts in the order in which they were written."""

    parts: tuple[Pattern, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Optional:
    pattern: Group
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Minus:
    pattern: Group
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Union:
    patterns: tuple[Group, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GraphPattern:
    """`GRAPH <g> { … }`"""

    name: Var | NamedNode
    pattern: Group
    span: Span = field(compare=False, repr=False)
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StreamPattern:
    """`STREAM <s> [window] AT ?t { … }`"""

    name: Var | NamedNode
    window: Window | None
    at: Var | None
    pattern: Group
    span: Span = field(compare=False, repr=False)
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WindowPattern:
    """`WINDOW :w { … }` of RSP-QL; `name` is a variable when every declared window is meant."""

    name: Var | NamedNode
    pattern: Group
    span: Span = field(compare=False, repr=False)
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ServicePattern:
    name: Var | NamedNode
    silent: bool
    pattern: Group
    span: Span = field(compare=False, repr=False)
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Filter:
    condition: Expression
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Bind:
    expression: Expression
    variable: Var
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Values:
    """Rows of terms, None where UNDEF was written."""

    variables: tuple[Var, ...]
    rows: tuple[tuple[Term | None, ...], ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Sequence:
    """`{…} SEQ {…}` and its kin. `kind` is `seq`, `equals`, `optionalseq` or `equalsoptional`."""

    left: Group | Sequence
    right: Group
    kind: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SubSelect:
    query: Select
    span: Span = field(compare=False, repr=False)


Pattern: TypeAlias = (
    Triples
    | Group
    | Optional
    | Minus
    | Union
    | GraphPattern
    | StreamPattern
    | WindowPattern
    | ServicePattern
    | Filter
    | Bind
    | Values
    | Sequence
    | SubSelect
)


# ---------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class Item:
    """One thing selected or grouped by: an expression, and the name it is given."""

    expression: Expression
    name: Var | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Order:
    expression: Expression
    descending: bool


@dataclass(frozen=True, slots=True)
class Modifier:
    group_by: tuple[Item, ...] = ()
    having: tuple[Expression, ...] = ()
    order_by: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT; `items` is None for `SELECT *`. Only the outermost one can have a dataset."""

    items: tuple[Item, ...] | None
    distinct: bool
    reduced: bool
    where: Group
    modifier: Modifier
    values: Values | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Construct:
    template: tuple[TriplePattern, ...]
    where: Group
    modifier: Modifier
    values: Values | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Ask:
    where: Group
    modifier: Modifier
    values: Values | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Describe:
    """Parsed so that it can be refused with a clear message: a description has no incremental meaning."""

    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StreamClause:
    """A stream named before WHERE.

    C-SPARQL, Streaming SPARQL: `FROM STREAM <s> […]`; SPARQLstream: `FROM NAMED STREAM <s> […]`;
    RSP-QL: `FROM NAMED WINDOW :w ON <s> […]`, which has a `name`.
    """

    stream: NamedNode
    window: Window | None
    named: bool
    name: NamedNode | None
    span: Span = field(compare=False, repr=False)
    stream_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Dataset:
    default: tuple[NamedNode, ...] = ()
    named: tuple[NamedNode, ...] = ()
    streams: tuple[StreamClause, ...] = ()
    spans: tuple[tuple[NamedNode, Span], ...] = field(default=(), compare=False, repr=False)
    """Where graphs are named."""


@dataclass(frozen=True, slots=True)
class Registration:
    """`REGISTER QUERY name AS`: `kind` is None, `query`, `stream`, `istream`, `dstream` or `rstream`."""

    kind: str | None
    name: str | NamedNode
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Query:
    """A whole query as written, with the dialect its words belong to."""

    registration: Registration | None
    form: Select | Construct | Ask | Describe
    dataset: Dataset
    dialect: str
    prefixes: tuple[tuple[str, str], ...] = ()


# ---------------------------------------------------------------- updates


@dataclass(frozen=True, slots=True)
class QuadPattern:
    """A triple and the graph it is in; None is the default graph (or that of WITH)."""

    subject: Node
    predicate: Var | NamedNode
    object: Node
    graph: Var | NamedNode | None


@dataclass(frozen=True, slots=True)
class InsertData:
    quads: tuple[QuadPattern, ...]


@dataclass(frozen=True, slots=True)
class DeleteData:
    quads: tuple[QuadPattern, ...]


@dataclass(frozen=True, slots=True)
class Modify:
    """DELETE { … } INSERT { … } USING … WHERE { … }; WITH is already written into the quads and the dataset."""

    delete: tuple[QuadPattern, ...]
    insert: tuple[QuadPattern, ...]
    dataset: Dataset
    where: Group


@dataclass(frozen=True, slots=True)
class Load:
    iri: NamedNode
    graph: NamedNode | None
    silent: bool


@dataclass(frozen=True, slots=True)
class Clear:
    """CLEAR and DROP. `graph` is None for the default graph; `which` is `one`, `named` or `all`."""

    graph: NamedNode | None
    which: str
    drop: bool
    silent: bool


@dataclass(frozen=True, slots=True)
class Create:
    graph: NamedNode
    silent: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """`kind` is `add`, `move` or `copy`; None is the default graph."""

    kind: str
    origin: NamedNode | None
    target: NamedNode | None
    silent: bool


Operation: TypeAlias = InsertData | DeleteData | Modify | Load | Clear | Create | Transfer


@dataclass(frozen=True, slots=True)
class Update:
    operations: tuple[Operation, ...]
