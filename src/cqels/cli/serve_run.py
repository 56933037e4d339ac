"""What `cqels serve` does between its arguments and its end: the pipeline, the service, the address."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqels.cli.output_paths import check_places, places_read
from cqels.cli.query_files import named_queries, query_text
from cqels.cli.run_local import Run, open_dataset
from cqels.cli.run_sinks import sinks_for
from cqels.cli.signals import Stopping
from cqels.cli.state_folder import STATE, check_state, forget_state
from cqels.model.errors import CqelsError
from cqels.model.sizes import format_size
from cqels.options import PipelineOptions
from cqels.pipeline_file import PIPELINE_FILE, Given, PipelineFile, relative_to
from cqels.serve_options import ServeOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cqels.serve.backend import MakeBackend, Pipeline
    from cqels.serve.server import Server

TICK = 0.2
"""Seconds between looks at whether to stop."""
BASE = "http://localhost:7070/"
_COLLECTED = 20_000, 50, 50
"""When Python looks for cycles: requests leave few, and looking as often as usual takes a quarter of small pushes."""
_BATCH_BYTES = 1 << 20
"""Of each stream in a batch: what is pushed waits as compressed blocks, of which this is many elements."""


def given_service(path: Path | None, tables: Mapping[str, Any]) -> Given:
    """What the command line says, and the pipeline file: that of the folder if there is one and no other is named."""
    if path is None and Path(PIPELINE_FILE).exists():
        path = Path(PIPELINE_FILE)
    file = None if path is None else PipelineFile.read(path)
    if path is not None and path.parent != Path():
        tables = relative_to(tables, Path.cwd())
        os.chdir(path.parent)
    said = dict(tables.get("pipeline", {}))
    if file is None or "engine" not in file.tables.get("pipeline", {}):
        said.setdefault("engine", "embedded")
    return Given(file, {**tables, "pipeline": said}, serves=True, query_text=query_text)


def serve(given: Given) -> None:
    """Serve what is given, until a signal ends it."""
    check_installed()
    options = given.options()
    given.check()
    state = options.run.state or STATE
    options = replace(options, run=replace(options.run, state=state))
    if options.run.engine == "reference":
        raise CqelsError("the reference engine serves nobody", hint="--engine embedded, or spark")
    if options.input.speed is not None or options.output.analyze:
        raise CqelsError("a service does not replay files and shows plans over HTTP", hint="cqels run does")
    if options.run.fresh:
        forget_state(state)
    check_state(state, options.run.engine)
    run = Run(options, named_queries(options.queries), None if given.file is None else given.file.source.name)
    output = options.output
    sinks = [("--out", each.to) for each in output.sink if not each.is_terminal]
    check_places(
        [*sinks, ("--rejects", output.rejects)], [*places_read(options), *(q.source.name for q in run.queries)]
    )
    with Stopping(lambda: None) as stopping, ExitStack() as stack:
        server = _server(run, state, stack)
        with run.placing(), _serving(server):
            stopping.listen()
            _announce(server, options)
            while not stopping.asked and not server.wait(TICK):
                pass
    sys.stderr.write("stopped; the same command goes on from here\n")


def check_installed() -> None:
    """Refuse where the service's libraries are not installed, before anything else is done."""
    from importlib.util import find_spec

    wanted = ("starlette", "uvicorn", "httptools", "prometheus_client", "websockets", "pyarrow", "orjson")
    if missing := [each for each in wanted if find_spec(each) is None]:
        raise CqelsError(f"there is no {' and no '.join(missing)}", hint="pip install 'cqels[serve]'")


@contextmanager
def _serving(server: Server) -> Iterator[None]:
    try:
        server.start()
        gc.set_threshold(*_COLLECTED)
        yield
    finally:
        server.stop()


# ---------------------------------------------------------------- from options to parts


def _server(run: Run, state: Path, stack: ExitStack) -> Server:
    from cqels.serve.access import read_access
    from cqels.serve.guard import Limits
    from cqels.serve.http_app import HttpSettings
    from cqels.serve.logs import log_to
    from cqels.serve.server import Address, Server
    from cqels.serve.service import Service

    serve = run.options.serve
    stack.enter_context(log_to(sys.stderr, serve.log_format))
    address = Address(
        host=serve.host,
        port=serve.port,
        certificate=serve.tls_cert,
        key=serve.tls_key,
        forwarded=",".join(serve.proxy) or None,
    )
    access = read_access(serve.tokens)
    if not access and not address.is_local and not serve.open:
        raise CqelsError(
            f"everybody who reaches {serve.host} could do everything: there are no tokens",
            hint="--tokens FILE, or the variable CQELS_TOKENS; --open if a proxy in front of it asks who they are",
        )
    limits = Limits(
        body=serve.max_body,
        connections=serve.max_connections,
        requests=serve.max_requests,
        origins=serve.allow_origin,
        hosts=_hosts(serve, address.is_local),
    )
    settings = _settings(run.options)
    service = Service(_pipeline(run, stack), state, settings, make=_backend(run, stack))
    return Server(service, address, HttpSettings(access=access, limits=limits))


def _hosts(serve: ServeOptions, is_local: bool) -> tuple[str, ...] | None:
    """Names that requests may call the service by: pages of the web could reach it by others that they own."""
    if not is_local and not serve.allow_host:
        return None
    from cqels.serve.guard import LOOPBACK

    return (*LOOPBACK, serve.host, *serve.allow_host)


def _settings(options: PipelineOptions) -> Any:
    from cqels.serve.memory import machine_memory
    from cqels.serve.served_stream import ServedStream, declared_streams
    from cqels.serve.service import ServiceSettings

    serve = options.serve
    otherwise = ServedStream(overflow=serve.overflow, inbox=serve.inbox)
    otherwise.check()
    return ServiceSettings(
        base=serve.base or BASE,
        stream=otherwise,
        streams=declared_streams(serve.streams, otherwise),
        most_queries=serve.max_queries,
        most_streams=serve.max_streams,
        memory=serve.memory or machine_memory() * 3 // 4,
        memory_per_query=options.queries.memory_per_query,
        time_per_query=options.queries.time_per_query,
        results=serve.results,
    )


def _pipeline(run: Run, stack: ExitStack) -> Pipeline:
    from cqels.engine.budgets import Budget
    from cqels.engine.event_time.wall_clock import TICK as CLOCK_TICK
    from cqels.live.live_run import LiveSettings
    from cqels.pipeline.sink.reject_files import Rejects
    from cqels.pipeline.source.watched_data import WatchedData, WatchedFile
    from cqels.serve.backend import Pipeline

    input, options = run.options.input, run.options.run
    store = open_dataset(run.options.dataset, watched=False)
    watched = WatchedData(WatchedFile(each.path, each.format, each.graph) for each in run.options.dataset.watched)
    watched.load(store)
    budgets = {each.name: Budget.of(*each.budget) for each in run.queries}
    rejects = run.options.output.rejects
    return Pipeline(
        store=store,
        streams=input.stream,
        queries=[each.query for each in run.queries],
        sinks=sinks_for(run, sys.stdout, stack) if run.options.output.sink else (),
        budgets={name: each for name, each in budgets.items() if each is not None},
        settings=LiveSettings(
            follow=True,
            lasting=True,
            start=input.start,
            strict=input.strict,
            changed=input.changed or "stop",
            batch_bytes=options.batch or _BATCH_BYTES,
            trigger=options.trigger or 0,
            tick=input.tick or CLOCK_TICK,
            lost=options.lost or "stop",
        ),
        watched=watched,
        rejects=None if rejects is None else Rejects(rejects, stream=sys.stderr, replace=options.fresh),
    )


def _backend(run: Run, stack: ExitStack) -> MakeBackend:
    from cqels.serve.backend import embedded

    if run.options.run.engine == "embedded":
        return embedded
    from cqels.cli.serve_spark import on_spark

    return on_spark(run, stack)


def _announce(server: Server, options: PipelineOptions) -> None:
    """Say where it is, and what can be done there."""
    serve, service = options.serve, server.service
    engine = (
        "in this process" if options.run.engine == "embedded" else f"on Spark at {options.run.master or 'local[*]'}"
    )
    lines = [
        ("address", server.url),
        ("engine", f"{options.run.engine}, {engine}" if options.run.engine == "embedded" else engine),
        ("state", f"{options.run.state}"),
        ("access", "by tokens" if serve.tokens or os.environ.get("CQELS_TOKENS") else "everybody on this machine"),
        ("memory", f"at most {format_size(service.settings.memory or 0)}"),
        ("push", f"curl -d @element.ttl {server.url}/streams/NAME"),
        ("register", f"curl -T query.rq {server.url}/queries/NAME"),
        ("results", f"curl -N {server.url}/queries/NAME/results"),
        ("end", "Ctrl-C; the same command goes on from there"),
    ]
    if serve.open and not server.address.is_local:
        lines[3] = ("access", "everybody who reaches it, which is said by --open")
    width = max(len(word) for word, _ in lines)
    sys.stderr.write("".join(f"{word:<{width}}  {text}\n" for word, text in lines))
    sys.stderr.flush()
