"""The options that several commands have, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cqels.model.choices import Lost, ResultFormat

INPUT, OUTPUT, SPARK, GOING_ON = "Input", "Output", "Spark", "Long runs"

StreamOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="IRI=PATH",
        rich_help_panel=INPUT,
        help="A stream and its files, e.g. '<http://ex.org/obs>=obs/*.nt?element=subject&lateness=2s', or with a "
        "prefix of the queries, ':obs=obs/*.nt'. Options after '?': element, time, unit, lateness, idle, clock, "
        "format, template, future. The path is also - for standard input, or the URL of a live source: mqtt://, "
        "kafka://, ws://, http:// (server-sent events), tcp://. May be given several times.",
    ),
]
DataOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=INPUT,
        help="Static RDF for the default graph. Where its name does not tell the format: file?format=turtle, or "
        "ntriples, nquads, trig, jsonld, rdfxml.",
    ),
]
PrefixOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:=IRI",
        rich_help_panel=INPUT,
        help="A prefix for the names of streams and graphs, as ex:=http://ex.org/, where the queries have none.",
    ),
]
GraphOption = Annotated[
    list[str] | None,
    typer.Option(metavar="IRI=FILE", rich_help_panel=INPUT, help="Static RDF for a named graph."),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", rich_help_panel=INPUT, help="Keep static data on disk in this directory, not in memory."
    ),
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch",
        rich_help_panel=INPUT,
        help="Change the data while it runs when a file of --data or --graph has changed; of one file: file?watch.",
    ),
]
TickOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=INPUT,
        help="How often time goes on by the wall clock while nothing arrives, on streams with clock=arrival or an "
        "idle time. By default what fits the windows, at least 1s.",
    ),
]
AllowServiceOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST",
        rich_help_panel=INPUT,
        help="A host that SERVICE and LOAD may ask, as ex.org or localhost:3030; then no other. Without it, any of "
        "the public Internet, and none of this machine or a private network. May be given several times.",
    ),
]
AllowLoadOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        rich_help_panel=INPUT,
        help="A folder that LOAD may read files of. May be given several times.",
    ),
]
ServiceRefreshOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=INPUT,
        help="How often a SERVICE is asked again, as 5m, which is the default.",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option("--strict", rich_help_panel=INPUT, help="Stop at the first malformed or late element."),
]
OutOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PLACE",
        rich_help_panel=OUTPUT,
        help="Write results here, not to the terminal: a file such as out.csv, a folder such as results/ with a "
        "file for each query, kafka://host:9092/topic, mqtt://host/topic or https://…. May be given several times; "
        "- is the terminal.",
    ),
]
FormatOption = Annotated[
    ResultFormat | None,
    typer.Option(
        rich_help_panel=OUTPUT, help="How results are written. By default the file's name tells; else as text."
    ),
]
RejectsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", rich_help_panel=OUTPUT, help="Write rejected and late input here, not to the terminal."
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        "--checkpoint",
        metavar="DIR",
        rich_help_panel=GOING_ON,
        help="Remember here how far the run has come, and go on from there. Without it each run begins anew; a "
        "pipeline file that runs live has state/.",
    ),
]
FreshOption = Annotated[
    bool,
    typer.Option("--fresh", rich_help_panel=GOING_ON, help="Forget the state of earlier runs, and begin anew."),
]
LostOption = Annotated[
    Lost | None,
    typer.Option(
        rich_help_panel=GOING_ON,
        help="Where results that were written are gone: stop and say so (the default), continue with what comes "
        "from now on, or rebuild: read all files once more and write all anew.",
    ),
]
MemoryPerQueryOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        rich_help_panel=GOING_ON,
        help="Stop a query whose state takes more, as 200MB; the others go on. The exit code is then 3.",
    ),
]
TimePerQueryOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=GOING_ON,
        help="The same for one that takes more of the processor's time for an element, on average, as 5ms.",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", rich_help_panel=SPARK, help="Where Spark runs. By default here, on all cores: local[*]."
    ),
]
InstancesOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, rich_help_panel=SPARK, help="Engines that the queries are spread over. Default: cores."
    ),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, rich_help_panel=SPARK, help="Spark's tasks for the engines."),
]
PlacementOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        rich_help_panel=SPARK,
        help="The engine that a query goes to: the one with the smallest buffers (the default), the least latency, "
        "or by rotation.",
    ),
]
LatencyOption = Annotated[
    str | None,
    typer.Option(
        metavar="low",
        rich_help_panel=SPARK,
        help="With low, one engine in the driver and micro-batches of one stage: results sooner, on one core.",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", rich_help_panel=SPARK, help="A setting of Spark's. May be given several times."),
]
