"""From the words of `cqels run` to a run: which pipeline file, what overrides it, where its state is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cqels.cli.query_files import named_queries, query_text
from cqels.cli.state_folder import STATE, check_state, forget_state, is_begun
from cqels.model.errors import CqelsError
from cqels.option_tables import graph_and_file
from cqels.options import PipelineOptions
from cqels.pipeline_file import PIPELINE_FILE, Given, PipelineFile, relative_to


def given_by(
    files: Sequence[Path],
    pipeline: dict[str, Any],
    *,
    stream: Iterable[str] | None = None,
    data: Iterable[Path] | None = None,
    graph: Iterable[str] | None = None,
    out: Iterable[str] | None = None,
    prefix: Iterable[str] | None = None,
) -> Given:
    """What the command line says, and the pipeline file that it names, if any."""
    path, queries = pipeline_file_of(files)
    tables = tables_given(pipeline, stream=stream, data=data, graph=graph, out=out, prefix=prefix)
    if queries:
        tables["queries"] = [str(each) for each in queries]
    file = None if path is None else PipelineFile.read(path)
    if file is not None and path is not None and (folder := path.parent) != Path():
        tables = relative_to(tables, Path.cwd())
        os.chdir(folder)  # so that state and messages have the same names wherever the command is given
    return Given(file, tables, query_text=query_text)


def tables_given(
    pipeline: dict[str, Any],
    *,
    stream: Iterable[str] | None = None,
    data: Iterable[Path] | None = None,
    graph: Iterable[str] | None = None,
    out: Iterable[str] | None = None,
    prefix: Iterable[str] | None = None,
) -> dict[str, Any]:
    """What the command line says, in the tables of a pipeline file."""
    tables: dict[str, Any] = {"pipeline": pipeline}
    lists = {
        "streams": list(stream or ()),
        "data": [*map(str, data or ()), *map(graph_and_file, graph or ())],
        "sinks": list(out or ()),
    }
    tables |= {name: entries for name, entries in lists.items() if entries}
    if prefix:
        tables["prefixes"] = dict(map(_prefix, prefix))
    return tables


def pipeline_file_of(files: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """The pipeline file among some files, and the queries; `pipeline.toml` where there is neither."""
    pipelines = [each for each in files if each.suffix == ".toml"]
    if len(pipelines) > 1:
        raise CqelsError("a run has one pipeline file", hint=f"leave out {' or '.join(map(str, pipelines))}")
    if not files:
        if not Path(PIPELINE_FILE).exists():
            raise CqelsError(
                f"there is no {PIPELINE_FILE} in this folder",
                hint="cqels init NAME makes a project with one; or name queries: cqels run hot.rq --stream …",
            )
        return Path(PIPELINE_FILE), []
    return next(iter(pipelines), None), [each for each in files if each.suffix != ".toml"]


def start_run(given: Given) -> None:
    """Run what is given, until it ends or is ended."""
    from cqels.cli.run_local import Run

    options = given.options()
    given.check()
    if not options.queries.query:
        raise CqelsError("there is no query to run", hint='[[queries]] with file = "hot.rq", or cqels run hot.rq')
    if given.file is not None and options.run.state is None:
        options = _with_state(options)
    queries = named_queries(options.queries)
    if (state := options.run.state) is not None:
        if options.run.fresh:
            forget_state(state)
        check_state(state, options.engine)
    Run(options, queries, None if given.file is None else given.file.source.name).execute()


def _with_state(options: PipelineOptions) -> PipelineOptions:
    """A pipeline that is live has a state; one that ends leaves the results of a live run as they are."""
    if options.is_live and options.engine != "reference":
        return replace(options, run=replace(options.run, state=STATE))
    files = [each.to for each in options.output.sinks if each.is_file]
    if files and is_begun(STATE):
        if not options.run.fresh:
            raise CqelsError(
                f"{files[0]} has the results of the run whose state is in {STATE}",
                hint="name another place, as --out -; or replace both by --fresh",
            )
        forget_state(STATE)
    return options


def _prefix(text: str) -> tuple[str, str]:
    name, separator, iri = text.partition(":=")
    if not separator or not iri:
        raise CqelsError(f"--prefix {text}: this is not a prefix and an IRI", hint="write --prefix ex:=http://ex.org/")
    return name, iri.removeprefix("<").removesuffix(">")
