"""SPARQL updates as text: parsed by our own grammar, so that every literal keeps its form, and run on a store."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cqels.lang import syntax
from cqels.lang.parser import parse_update
from cqels.model.errors import CqelsError, Source
from cqels.model.redact import redacted_url
from cqels.plan.binder import bind_group
from cqels.plan.scope import variables
from cqels.store import update
from cqels.store.dataset import Store
from cqels.store.dependencies import GraphName
from cqels.store.download import Downloaded, download
from cqels.store.update import QuadTemplate

_LOG = logging.getLogger("cqels")


def execute(
    store: Store,
    text: str,
    *,
    name: str = "<update>",
    base: str | None = None,
    dataset: syntax.Dataset | None = None,
) -> None:
    """Run an update. All of its operations take effect as one change, or none if one fails.

    `dataset` is what WHERE is about, said beside the update: then it does not say so itself.
    """
    script = parse_update(text, name=name, base=base)
    try:
        operations = [each if dataset is None else _about(dataset, each) for each in script.operations]
        sources = [_source(store, each) if isinstance(each, syntax.Load) else None for each in operations]
        with store.transaction():
            for operation, source in zip(operations, sources, strict=True):
                _run(store, operation, source)
    except CqelsError as error:
        error.locate(Source(text, name))
        raise


def _about(dataset: syntax.Dataset, operation: syntax.Operation) -> syntax.Operation:
    """An operation with its dataset said beside it."""
    if not isinstance(operation, syntax.Modify):
        return operation
    if operation.dataset.default or operation.dataset.named:
        raise CqelsError(
            "the update has USING or WITH, and its graphs are said beside it", hint="leave out one of them"
        )
    return replace(operation, dataset=dataset)


def _run(store: Store, operation: syntax.Operation, source: Path | Downloaded | None) -> None:
    """An operation; `source` is what LOAD reads, None if it goes on without it."""
    match operation:
        case syntax.InsertData(quads=quads):
            update.insert_data(store, map(_template, quads))
        case syntax.DeleteData(quads=quads):
            update.delete_data(store, map(_template, quads))
        case syntax.Modify():
            _modify(store, operation)
        case syntax.Load(graph=graph, silent=silent):
            if source is not None:
                update.load(store, source, graph, silent=silent)
        case syntax.Clear(drop=drop, silent=silent):
            change = update.drop if drop else update.clear
            change(store, _graphs(store, operation), silent=silent)
        case syntax.Create(graph=graph, silent=silent):
            update.create(store, graph, silent=silent)
        case syntax.Transfer(kind=kind, origin=origin, target=target, silent=silent):
            transfer = {"add": update.add, "move": update.move, "copy": update.copy}[kind]
            transfer(store, origin, target, silent=silent)


def _modify(store: Store, operation: syntax.Modify) -> None:
    plan = bind_group(operation.where)
    names = variables(plan)
    rows = store.select(
        plan,
        names,
        default_graphs=operation.dataset.default or (() if operation.dataset.named else None),
        named_graphs=operation.dataset.named or None,
    )
    solutions = [dict(zip(names, row, strict=True)) for row in rows]
    update.modify(store, map(_template, operation.delete), map(_template, operation.insert), solutions)


def _template(quad: syntax.QuadPattern) -> QuadTemplate:
    return QuadTemplate(quad.subject, quad.predicate, quad.object, quad.graph)


def _graphs(store: Store, operation: syntax.Clear) -> list[GraphName]:
    match operation.which:
        case "named":
            return list(store.named_graphs())
        case "all":
            return [None, *store.named_graphs()]
        case _:
            return [operation.graph]


def _source(store: Store, operation: syntax.Load) -> Path | Downloaded | None:
    """What LOAD reads, if that is allowed: a file, or one of the web, which is fetched before the store is locked."""
    permissions, iri = store.services.permissions, operation.iri
    parts = urlsplit(iri.value)
    try:
        if parts.scheme in ("http", "https"):
            return download(iri.value, permissions)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise CqelsError(
                f"LOAD reads files and HTTP addresses, and <{redacted_url(iri.value)}> is neither",
                hint="write LOAD <file:///…> or LOAD <https://…>",
            )
        return permissions.check_file(Path(unquote(parts.path)))
    except CqelsError as error:
        if not operation.silent:
            raise
        _LOG.warning("%s (%s); LOAD SILENT goes on without it", error.message, error.hint)
        return None
