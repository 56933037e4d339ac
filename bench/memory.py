"""Does memory stay the same while the stream goes on? Ever-new IRIs through a window of a minute and a join.

    python bench/memory.py                                     # 2 million triples
    python bench/memory.py --triples 50000000 --plot memory.png

Each observation is an IRI that never comes again, with two triples that a query joins in a window of one minute of
event time; results are taken and counted.  Resident memory is read after every block of lines: in the last tenth of the
run it should be within 10 % of what it was in the tenth in the middle.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
from figures import plotter
from lines import EX, readings
from measure import CONSOLE, machine, per_second, progress, resident

import cqels

QUERY = f"""PREFIX : <{EX}>
SELECT ?observation ?temperature ?humidity WHERE {{
  STREAM :readings [RANGE 1m] {{ ?observation :temp ?temperature . ?observation :damp ?humidity }}
}}"""
BLOCK = 20_000
"""Lines that are pushed at once."""
NEAR = 0.1


def block_of(number: int, rate: int) -> bytes:
    """A block of lines: two for each observation, `rate` of them in a second of event time."""
    first = number * BLOCK
    places = np.arange(first, first + BLOCK)
    values = np.random.default_rng(number).integers(100, 1000, BLOCK)
    return readings(places // 2, places * 1000 // rate, values, ("temp", "damp"))


def run(triples: int, rate: int, *, counted: bool) -> list[tuple[int, int, int]]:
    """Samples: triples so far, bytes of resident memory, results so far."""
    samples: list[tuple[int, int, int]] = []
    results = 0
    with cqels.Engine() as engine, progress() as bar:
        task = bar.add_task("", total=triples)
        query = engine.register(QUERY)
        for number in range(-(-triples // BLOCK)):
            engine.push(EX + "readings", block_of(number, rate))
            if counted:
                results += sum(map(len, query.running.raw))
                query.running.raw.clear()
            else:
                results += len(query.take())
            samples.append(((number + 1) * BLOCK, resident(), results))
            bar.update(task, completed=samples[-1][0], description=f"{samples[-1][1] / 1e6:.0f} MB")
    return samples


def tenth(samples: list[tuple[int, int, int]], middle: float) -> float:
    """The median of memory in the tenth of the run around a place."""
    first = int((middle - 0.05) * len(samples))
    return median(memory for _, memory, _ in samples[first : max(first + 1, int((middle + 0.05) * len(samples)))])


def plot(samples: list[tuple[int, int, int]], path: Path) -> None:
    pyplot = plotter()
    canvas, axes = pyplot.subplots(figsize=(8, 4))
    axes.plot([done / 1e6 for done, _, _ in samples], [memory / 1e6 for _, memory, _ in samples])
    axes.set(xlabel="million triples", ylabel="resident MB", ylim=(0, None), title="ever-new IRIs, window of a minute")
    axes.grid(visible=True, alpha=0.3)
    canvas.savefig(path, dpi=120, bbox_inches="tight")
    CONSOLE.print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triples", type=int, default=2_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=1_000, help="triples per second of event time (default: 1000)")
    parser.add_argument("--count", action="store_true", help="count results as rows instead of taking them: faster")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a PNG (needs matplotlib)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the samples")
    options = parser.parse_args()
    if options.triples < 20 * BLOCK:
        parser.error(f"a run has at least {20 * BLOCK} triples")
    if options.plot:
        plotter()  # say now that it is missing
    began, clock = process_time(), perf_counter()
    samples = run(options.triples, options.rate, counted=options.count)
    spent, wall = process_time() - began, perf_counter() - clock
    for part in range(1, 11):
        done, memory, results = samples[len(samples) * part // 10 - 1]
        CONSOLE.print(f"{done:>13,} triples  {memory / 1e6:>8.1f} MB  {results:>13,} results")
    middle, last = tenth(samples, 0.5), tenth(samples, 0.95)
    CONSOLE.print(f"{machine()}: {per_second(samples[-1][0] / spent)} triples of processor time, {wall:.0f} s")
    CONSOLE.print(
        f"middle {middle / 1e6:.1f} MB, last tenth {last / 1e6:.1f} MB ({last / middle - 1:+.1%}): "
        f"within 10 %: {'yes' if abs(last / middle - 1) <= NEAR else 'no'}"
    )
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "samples": samples}) + "\n")
    if options.plot:
        plot(samples, options.plot)


if __name__ == "__main__":
    main()
