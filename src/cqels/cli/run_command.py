"""`cqels run`: its options with their help, and the options object that they fill."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cqels.cli.query_files import (
    MEANING,
    DialectOption,
    EmitOption,
    LenientOption,
    PolicyOption,
)
from cqels.cli.shared_options import (
    GOING_ON,
    OUTPUT,
    SPARK,
    AllowLoadOption,
    AllowServiceOption,
    ConfOption,
    DataOption,
    FormatOption,
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
    StateOption,
    StoreOption,
    StreamOption,
    StrictOption,
    TickOption,
    TimePerQueryOption,
    WatchOption,
)
from cqels.model.choices import EngineName


def run(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE…",
            help="A pipeline file, as pipeline.toml; or query files, where - reads standard input; or both, and then "
            "these queries with the rest of the file. Without any: pipeline.toml of this folder.",
        ),
    ] = None,
    stream: StreamOption = None,
    data: DataOption = None,
    prefix: PrefixOption = None,
    graph: GraphOption = None,
    store: StoreOption = None,
    watch: WatchOption = False,
    tick: TickOption = None,
    allow_service: AllowServiceOption = None,
    allow_load: AllowLoadOption = None,
    service_refresh: ServiceRefreshOption = None,
    strict: StrictOption = False,
    out: OutOption = None,
    format: FormatOption = None,
    rejects: RejectsOption = None,
    metrics: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=OUTPUT, help="Add a line of JSON for each micro-batch."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|PORT", rich_help_panel=OUTPUT, help="Metrics for Prometheus: in a file, or on a port."
        ),
    ] = None,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            rich_help_panel=OUTPUT,
            help="At the end show each query's plan with what was done: rows, window sizes, bytes of state, the orders "
            "that joins took. Needs --engine embedded.",
        ),
    ] = False,
    emit: EmitOption = None,
    policy: PolicyOption = None,
    dialect: DialectOption = None,
    lenient: LenientOption = False,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=MEANING,
            help="The time that the boundaries of sliding windows are counted from.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", rich_help_panel=MEANING, help="After the last element, let time go on until then."
        ),
    ] = None,
    state: StateOption = None,
    fresh: FreshOption = False,
    lost: LostOption = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow", rich_help_panel=GOING_ON, help="Wait for new files and lines, until Ctrl-C."
        ),
    ] = None,
    changed: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            rich_help_panel=GOING_ON,
            help="What to do with a file that was replaced, shortened or removed: stop (the default), skip or reread.",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="N", rich_help_panel=GOING_ON, help="Replay at the pace of the data's own times, N times faster."
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="SIZE", rich_help_panel=GOING_ON, help="Most bytes of input in a micro-batch, as 32MB."),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", rich_help_panel=GOING_ON, help="Time between micro-batches. By default as fast as it goes."
        ),
    ] = None,
    memory_per_query: MemoryPerQueryOption = None,
    time_per_query: TimePerQueryOption = None,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            rich_help_panel=SPARK,
            help="What runs the queries: Spark; the same incremental engine in this process, without Java (embedded); "
            "or the one that computes everything anew at every tick (reference).",
        ),
    ] = None,
    master: MasterOption = None,
    instances: InstancesOption = None,
    partitions: PartitionsOption = None,
    placement: PlacementOption = None,
    latency: LatencyOption = None,
    spread: Annotated[
        bool,
        typer.Option(
            "--spread",
            rich_help_panel=SPARK,
            help="Let all engines have a part of each query, by a variable that all its triple patterns over streams "
            "have; queries that have none run as a whole.",
        ),
    ] = False,
    ui: Annotated[
        bool, typer.Option("--ui", rich_help_panel=SPARK, help="Have Spark's own pages, and say where they are.")
    ] = False,
    conf: ConfOption = None,
) -> None:
    """Run a pipeline file, or queries over streams, and write their exact results.

    On Spark, unless told otherwise. What is written does not depend on the engine or on timing.

    The project in this folder (cqels init makes one), live until Ctrl-C; the next run goes on from there:

        cqels run

    Results as they come, to the terminal:

        cqels run hot.rq --stream '<http://ex.org/obs>=obs.nt' --data rooms.ttl

    Several queries, each with a file of its own, and what was malformed or late in another:

        cqels run hot.rq mean.rq --stream '<http://ex.org/obs>=obs/*.nt' --out results/ --rejects rejects.tsv

    Day and night: new files as they appear, and after an interruption go on, nothing lost and nothing twice:

        cqels run hot.rq --stream '<http://ex.org/obs>=obs/' --follow --state state/ --out hot.csv

    A recorded day as if it were now, a hundred times faster:

        cqels run hot.rq --stream '<http://ex.org/obs>=day.nt' --speed 100

    What another program writes, as it comes:

        sensors | cqels run hot.rq --engine embedded --stream '<http://ex.org/obs>=-'
    """
    from cqels.cli.pipeline_run import given_by, start_run

    pipeline = _given(
        strict=strict or None,
        start=start,
        until=until,
        follow=follow,
        changed=changed,
        speed=speed,
        store=store,
        watch=watch or None,
        tick=tick,
        allow_service=allow_service,
        allow_load=allow_load,
        service_refresh=service_refresh,
        dialect=dialect,
        emit=emit,
        policy=policy,
        lenient=lenient or None,
        memory_per_query=memory_per_query,
        time_per_query=time_per_query,
        engine=engine,
        master=master,
        state=state,
        fresh=fresh or None,
        lost=lost,
        instances=instances,
        partitions=partitions,
        placement=placement,
        latency=latency,
        spread=spread or None,
        batch=batch,
        trigger=trigger,
        ui=ui or None,
        conf=conf,
        format=format,
        rejects=rejects,
        metrics=metrics,
        prometheus=prometheus,
        analyze=analyze or None,
    )
    start_run(given_by(files or [], pipeline, stream=stream, data=data, graph=graph, out=out, prefix=prefix))


def _given(**options: object) -> dict[str, object]:
    """The options that are there: the others have their defaults, or what the pipeline file says."""
    return {name: value for name, value in options.items() if value is not None}
