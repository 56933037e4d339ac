"""Records to words: taxi trips lifted by a template, from CSV and JSON, as bytes and one by one, in one run.

    python bench/lifting.py --records 200000

The trips have the 17 columns of the DEBS 2015 Grand Challenge; the template makes nine triples of each.  A line of JSON
has the same 17 members, and 2.6 times the bytes.  Each way begins with an empty dictionary.  Record by record, a
fiftieth of them is read.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import random
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from measure import CONSOLE, machine, nanoseconds, per_second, progress, timed_in_turn
from rich.table import Table

from cqels.ingest import Rejected, declare
from cqels.ingest.encode import Intake
from cqels.ingest.file_batches import file_batches
from cqels.ingest.lifting_template import Template, read_template
from cqels.ingest.stream_files import read_file
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary

STREAM = "http://example.org/trips"
COLUMNS = (
    "medallion,hack_license,pickup_datetime,dropoff_datetime,trip_time_in_secs,trip_distance,pickup_longitude,"
    "pickup_latitude,dropoff_longitude,dropoff_latitude,payment_type,fare_amount,surcharge,mta_tax,tip_amount,"
    "tolls_amount,total_amount"
)
TEMPLATE = """
subject = "http://example.org/trip/{medallion}-{pickup_datetime}"

[prefixes]
ex = "http://example.org/"

[time]
column = "dropoff_datetime"

[predicates]
a = { iri = "ex:Trip" }
"ex:taxi" = { iri = "http://example.org/taxi/{medallion}" }
"ex:driver" = { iri = "http://example.org/driver/{hack_license}" }
"ex:seconds" = { column = "trip_time_in_secs", datatype = "xsd:integer" }
"ex:pickLon" = { column = "pickup_longitude", datatype = "xsd:double" }
"ex:pickLat" = { column = "pickup_latitude", datatype = "xsd:double" }
"ex:pickup" = { column = "pickup_datetime", datatype = "xsd:dateTime" }
"ex:payment" = { column = "payment_type" }
"ex:total" = { column = "total_amount", datatype = "xsd:decimal" }
"""
TEXTS = ("medallion", "hack_license", "pickup_datetime", "dropoff_datetime", "payment_type")
TAXIS, DRIVERS = 13_000, 30_000
PER_SECOND = 5.4


def trips(count: int, seed: int = 1) -> str:
    """Trips in the order of their ends, as many a second as there were in 2013."""
    draw = random.Random(seed)
    lines = [COLUMNS]
    for number in range(count):
        end = datetime(2013, 1, 1) + timedelta(seconds=int(number / PER_SECOND))
        seconds = draw.randrange(60, 3000)
        fare, tip = draw.randrange(5, 120) / 2, draw.randrange(800) / 100
        places = (f"{-73.7 - 0.4 * draw.random():.6f},{40.6 + 0.3 * draw.random():.6f}" for _ in range(2))
        lines.append(
            f"{_license('taxi', draw.randrange(TAXIS))},{_license('driver', draw.randrange(DRIVERS))},"
            f"{end - timedelta(seconds=seconds)},{end},{seconds},{draw.randrange(30, 2500) / 100:.2f},"
            f"{','.join(places)},{draw.choice(('CSH', 'CRD'))},{fare:.2f},{draw.choice(('0.00', '0.50', '1.00'))},"
            f"0.50,{tip:.2f},0.00,{fare + tip + 0.5:.2f}"
        )
    return "\n".join(lines) + "\n"


def objects(lines: str) -> str:
    """The same trips as JSON lines."""
    rows = csv.DictReader(lines.splitlines())
    made = ({name: value if name in TEXTS else json.loads(value) for name, value in row.items()} for row in rows)
    return "".join(json.dumps(each) + "\n" for each in made)


def _license(kind: str, number: int) -> str:
    return hashlib.md5(f"{kind}{number}".encode()).hexdigest().upper()


def _refuse(rejected: Rejected) -> None:
    raise ValueError(str(rejected))


def as_bytes(path: Path, template: Template) -> Callable[[int], None]:
    declaration = declare(STREAM, path, template=path)

    def run(_: int) -> None:
        intake = Intake(Terms(ArenaDictionary(Arena())))
        for _batch in file_batches(declaration, path, template, 0, intake, _refuse):
            pass

    return run


def as_records(path: Path, template: Template, count: int) -> Callable[[int], None]:
    declaration = declare(STREAM, path, template=path)

    def run(_: int) -> None:
        intake = Intake(Terms(ArenaDictionary(Arena())))
        for element in islice(read_file(declaration, path, template, _refuse), count):
            intake.triples(0, element.time, element.triples)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    count = parser.parse_args().records
    few = max(count // 50, 1)
    with tempfile.TemporaryDirectory() as folder, progress() as shown:
        shown.add_task("lifting", total=None)
        paths, toml = [Path(folder, f"trips.{name}") for name in ("csv", "jsonl")], Path(folder, "trip.toml")
        paths[0].write_text(trips(count))
        paths[1].write_text(objects(paths[0].read_text()))
        toml.write_text(TEMPLATE)
        template = read_template(toml)
        quick = [as_bytes(path, template) for path in paths]
        slow = [as_records(path, template, few) for path in paths]
        spent = timed_in_turn(*quick, *slow)
    triples = len(template.nodes[0].predicates)
    table = Table("lifting", "records", "triples", "a record", title=f"{count:,} trips, {machine()}")
    names = ("CSV as bytes", "JSON as bytes", "CSV record by record", "JSON record by record")
    each = [spent[0] / count, spent[1] / count, spent[2] / few, spent[3] / few]
    for name, time in zip(names, each, strict=True):
        table.add_row(name, per_second(1 / time), per_second(triples / time), nanoseconds(time))
    CONSOLE.print(table)
    CONSOLE.print(f"CSV as bytes is {each[2] / each[0]:.1f} times as fast as record by record")
    CONSOLE.print(f"JSON lines have {each[0] / each[1]:.2f} of the rate of CSV")


if __name__ == "__main__":
    main()
