"""`cqels serve`: its options with their help."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from cqels.cli.shared_options import (
    GOING_ON,
    SPARK,
    AllowLoadOption,
    AllowServiceOption,
    ConfOption,
    DataOption,
    FreshOption,
    GraphOption,
    InstancesOption,
    LatencyOption,
    LostOption,
    MasterOption,
    MemoryPerQueryOption,
    OutOption,
    PartitionsOption,
    PlacementOption,
    PrefixOption,
    RejectsOption,
    ServiceRefreshOption,
    StoreOption,
    StreamOption,
    TickOption,
    TimePerQueryOption,
    WatchOption,
)
from cqels.model.choices import EngineName, LogFormat, Overflow

_ADDRESS, _ACCESS, _LIMITS = "Address", "Who may do what", "Limits"


def serve(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="PIPELINE",
            help="A pipeline file: its streams, data, queries and sinks run from the beginning. Without it: "
            "pipeline.toml of this folder, if there is one.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel=_ADDRESS, help="Where to listen: 127.0.0.1, or 0.0.0.0 for other machines."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=65535, rich_help_panel=_ADDRESS, help="By default 7070; 0 is any that is free."
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="IRI",
            rich_help_panel=_ADDRESS,
            help="Streams and queries that are named without a scheme are below it. By default http://localhost:7070/.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_ADDRESS, help="The certificate for HTTPS, as PEM."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_ADDRESS, help="Its key, if that is another file."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            rich_help_panel=_ADDRESS,
            help="A proxy in front of it, whose word about who the client is counts. May be given several times.",
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_ACCESS,
            help="Who may do what: in each line a token and its rights, of read, push, register, admin. Else the "
            "variable CQELS_TOKENS; without both everybody on this machine may do everything.",
        ),
    ] = None,
    open: Annotated[
        bool,
        typer.Option("--open", rich_help_panel=_ACCESS, help="No tokens, though other machines reach it."),
    ] = False,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            rich_help_panel=_ACCESS,
            help="A web site whose pages may use the service, as https://ex.org. May be given several times.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_ACCESS,
            help="A name that the service may be called by, beside localhost. May be given several times.",
        ),
    ] = None,
    allow_service: AllowServiceOption = None,
    allow_load: AllowLoadOption = None,
    max_body: Annotated[
        str | None, typer.Option(metavar="SIZE", rich_help_panel=_LIMITS, help="Of a request: 64MB.")
    ] = None,
    max_queries: Annotated[
        int | None, typer.Option(metavar="N", min=1, rich_help_panel=_LIMITS, help="Queries that run: 1000.")
    ] = None,
    max_streams: Annotated[
        int | None, typer.Option(metavar="N", min=1, rich_help_panel=_LIMITS, help="Streams: 1000.")
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, rich_help_panel=_LIMITS, help="Requests and readers at the same time: 4096."),
    ] = None,
    max_requests: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, rich_help_panel=_LIMITS, help="Requests of one client in a second."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=_LIMITS,
            help="What the service may have, as 4GB. Close to it senders have to wait, then the query with the largest "
            "state is dropped. By default three quarters of the machine's.",
        ),
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", rich_help_panel=_LIMITS, help="Results on the disk that readers can go back to: 256MB."
        ),
    ] = None,
    inbox: Annotated[
        str | None,
        typer.Option(metavar="SIZE", rich_help_panel=_LIMITS, help="Elements of a stream that wait: 1GB."),
    ] = None,
    overflow: Annotated[
        Overflow | None,
        typer.Option(
            rich_help_panel=_LIMITS,
            help="What becomes of more: their senders are told to wait (block, the default), the oldest of those that "
            "wait are dropped, or a sample is taken. Of one stream: [[serve.streams]], or PUT /streams/NAME.",
        ),
    ] = None,
    memory_per_query: MemoryPerQueryOption = None,
    time_per_query: TimePerQueryOption = None,
    stream: StreamOption = None,
    prefix: PrefixOption = None,
    data: DataOption = None,
    graph: GraphOption = None,
    store: StoreOption = None,
    watch: WatchOption = False,
    tick: TickOption = None,
    service_refresh: ServiceRefreshOption = None,
    out: OutOption = None,
    rejects: RejectsOption = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="How the log is written, to standard error: as text, or lines of json.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=GOING_ON,
            help="All that the service has: it goes on from there. By default state/.",
        ),
    ] = None,
    fresh: FreshOption = False,
    lost: LostOption = None,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            rich_help_panel=SPARK,
            help="What runs the queries: this process (embedded), unless the pipeline file says spark.",
        ),
    ] = None,
    master: MasterOption = None,
    instances: InstancesOption = None,
    partitions: PartitionsOption = None,
    placement: PlacementOption = None,
    latency: LatencyOption = None,
    conf: ConfOption = None,
) -> None:
    """Serve queries over HTTP: register them, push elements, subscribe to results, ask and update the data.

    In this process, up in a second, with all that it has in state/:

        cqels serve

        curl -T hot.rq localhost:7070/queries/hot

        curl -N localhost:7070/queries/hot/results

        curl -d @element.ttl localhost:7070/streams/obs

    The same over a pipeline on Spark:

        cqels serve --engine spark --master spark://…

    For other machines, with tokens and TLS:

        cqels serve --host 0.0.0.0 --tokens tokens.txt --tls-cert cert.pem --tls-key key.pem

    GET /openapi.json describes the interface; cqels.connect("http://…") is its client in Python.
    """
    from cqels.cli.pipeline_run import tables_given
    from cqels.cli.serve_run import given_service
    from cqels.cli.serve_run import serve as start

    pipeline = {
        "store": store,
        "watch": watch or None,
        "tick": tick,
        "allow_service": allow_service,
        "allow_load": allow_load,
        "service_refresh": service_refresh,
        "memory_per_query": memory_per_query,
        "time_per_query": time_per_query,
        "rejects": rejects,
        "state": state,
        "fresh": fresh or None,
        "lost": lost,
        "engine": engine,
        "master": master,
        "instances": instances,
        "partitions": partitions,
        "placement": placement,
        "latency": latency,
        "conf": conf,
    }
    service = {
        "host": host,
        "port": port,
        "base": base,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "proxy": proxy,
        "tokens": tokens,
        "open": open or None,
        "allow_origin": allow_origin,
        "allow_host": allow_host,
        "max_body": max_body,
        "max_queries": max_queries,
        "max_streams": max_streams,
        "max_connections": max_connections,
        "max_requests": max_requests,
        "memory": memory,
        "results": results,
        "inbox": inbox,
        "overflow": overflow,
        "log_format": log_format,
    }
    tables = tables_given(_said(pipeline), stream=stream, data=data, graph=graph, out=out, prefix=prefix)
    start(given_service(file, tables | {"serve": _said(service)}))


def _said(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}
