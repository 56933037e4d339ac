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
from cqels.model.choices import EngineName, Lost, ResultFormat

_INPUT, _OUTPUT, _SPARK, _GOING_ON = "Input", "Output", "Spark", "Long runs"


def run(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE…",
            help="A pipeline file, as pipeline.toml; or query files, where - reads standard input; or both, and then "
            "these queries with the rest of the file. Without any: pipeline.toml of this folder.",
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="IRI=PATH",
            rich_help_panel=_INPUT,
            help="A stream and its files, e.g. '<http://ex.org/obs>=obs/*.nt?element=subject&lateness=2s', or with a "
            "prefix of the queries, ':obs=obs/*.nt'. Options after '?': element, time, unit, lateness, idle, clock, "
            "format, template, future. The path is also - for standard input, or the URL of a live source: mqtt://, "
            "kafka://, ws://, http:// (server-sent events), tcp://. May be given several times.",
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_INPUT,
            help="Static RDF for the default graph. Where its name does not tell the format: file?format=turtle, or "
            "ntriples, nquads, trig, jsonld, rdfxml.",
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:=IRI",
            rich_help_panel=_INPUT,
            help="A prefix for the names of streams and graphs, as ex:=http://ex.org/, where the queries have none.",
        ),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(metavar="IRI=FILE", rich_help_panel=_INPUT, help="Static RDF for a named graph."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", rich_help_panel=_INPUT, help="Keep static data on disk in this directory, not in memory."
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            rich_help_panel=_INPUT,
            help="Change the data while it runs when a file of --data or --graph has changed; of one file: file?watch.",
        ),
    ] = False,
    tick: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=_INPUT,
            help="How often time goes on by the wall clock while nothing arrives, on streams with clock=arrival or an "
            "idle time. By default what fits the windows, at least 1s.",
        ),
    ] = None,
    allow_service: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            rich_help_panel=_INPUT,
            help="A host that SERVICE and LOAD may ask, as ex.org or localhost:3030; then no other. Without it, any of "
            "the public Internet, and none of this machine or a private network. May be given several times.",
        ),
    ] = None,
    allow_load: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=_INPUT,
            help="A folder that LOAD may read files of. May be given several times.",
        ),
    ] = None,
    service_refresh: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=_INPUT,
            help="How often a SERVICE is asked again, as 5m, which is the default.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", rich_help_panel=_INPUT, help="Stop at the first malformed or late element."),
    ] = False,
    out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            rich_help_panel=_OUTPUT,
            help="Write results here, not to the terminal: a file such as out.csv, a folder such as results/ with a "
            "file for each query, kafka://host:9092/topic, mqtt://host/topic or https://…. May be given several times; "
            "- is the terminal.",
        ),
    ] = None,
    format: Annotated[
        ResultFormat | None,
        typer.Option(
            rich_help_panel=_OUTPUT, help="How results are written. By default the file's name tells; else as text."
        ),
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=_OUTPUT, help="Write rejected and late input here, not to the terminal."
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_OUTPUT, help="Add a line of JSON for each micro-batch."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|PORT", rich_help_panel=_OUTPUT, help="Metrics for Prometheus: in a file, or on a port."
        ),
    ] = None,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            rich_help_panel=_OUTPUT,
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
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            "--checkpoint",
            metavar="DIR",
            rich_help_panel=_GOING_ON,
            help="Remember here how far the run has come, and go on from there. Without it each run begins anew; a "
            "pipeline file that runs live has state/.",
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", rich_help_panel=_GOING_ON, help="Forget the state of earlier runs, and begin anew."),
    ] = False,
    lost: Annotated[
        Lost | None,
        typer.Option(
            rich_help_panel=_GOING_ON,
            help="Where results that were written are gone: stop and say so (the default), continue with what comes "
            "from now on, or rebuild: read all files once more and write all anew.",
        ),
    ] = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow", rich_help_panel=_GOING_ON, help="Wait for new files and lines, until Ctrl-C."
        ),
    ] = None,
    changed: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            rich_help_panel=_GOING_ON,
            help="What to do with a file that was replaced, shortened or removed: stop (the default), skip or reread.",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="N", rich_help_panel=_GOING_ON, help="Replay at the pace of the data's own times, N times faster."
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="SIZE", rich_help_panel=_GOING_ON, help="Most bytes of input in a micro-batch, as 32MB."),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", rich_help_panel=_GOING_ON, help="Time between micro-batches. By default as fast as it goes."
        ),
    ] = None,
    memory_per_query: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=_GOING_ON,
            help="Stop a query whose state takes more, as 200MB; the others go on. The exit code is then 3.",
        ),
    ] = None,
    time_per_query: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=_GOING_ON,
            help="The same for one that takes more of the processor's time for an element, on average, as 5ms.",
        ),
    ] = None,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            rich_help_panel=_SPARK,
            help="What runs the queries: Spark; the same incremental engine in this process, without Java (embedded); "
            "or the one that computes everything anew at every tick (reference).",
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", rich_help_panel=_SPARK, help="Where Spark runs. By default here, on all cores: local[*]."
        ),
    ] = None,
    instances: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, rich_help_panel=_SPARK, help="Engines that the queries are spread over. Default: cores."
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, rich_help_panel=_SPARK, help="Spark's tasks for the engines."),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            rich_help_panel=_SPARK,
            help="The engine that a query goes to: the one with the smallest buffers (the default), the least latency, "
            "or by rotation.",
        ),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            metavar="low",
            rich_help_panel=_SPARK,
            help="With low, one engine in the driver and micro-batches of one stage: results sooner, on one core.",
        ),
    ] = None,
    spread: Annotated[
        bool,
        typer.Option(
            "--spread",
            rich_help_panel=_SPARK,
            help="Let all engines have a part of each query, by a variable that all its triple patterns over streams "
            "have; queries that have none run as a whole.",
        ),
    ] = False,
    ui: Annotated[
        bool, typer.Option("--ui", rich_help_panel=_SPARK, help="Have Spark's own pages, and say where they are.")
    ] = False,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", rich_help_panel=_SPARK, help="A setting of Spark's. May be given several times."
        ),
    ] = None,
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
