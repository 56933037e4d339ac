"""`python -m tests.fuzz --minutes 60`: tries of all kinds in turn; the exit code is 1 if one has failed."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .harness import FOLDER, Fuzzing
from .kinds import KINDS

MOST_SHOWN = 10
"""Failures that are named each minute; all of them have left their cases."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, all kinds together")
    parser.add_argument("--tries", type=int, help="so many of each kind, however long it takes")
    parser.add_argument("--kind", action="append", choices=[*KINDS], help="this one alone (may be repeated)")
    parser.add_argument("--seed", type=int, help="the first one; that of the clock unless given")
    parser.add_argument("--jobs", type=int, default=1, help="kinds at the same time")
    parser.add_argument("--cases", type=Path, default=FOLDER, help="where failures are written")
    parser.add_argument("--repeat", type=Path, help="a case that was written: try it once, in this process")
    options = parser.parse_args(arguments)
    if options.repeat:
        KINDS[options.repeat.name.rpartition("-")[0]].check(options.repeat.read_bytes())
        return say("it did not fail")
    seed = int(time.time()) * 1000 if options.seed is None else options.seed
    kinds = [KINDS[name] for name in options.kind or KINDS]
    fuzzing = Fuzzing(kinds, seed=seed, folder=options.cases, jobs=options.jobs)
    began, told = time.monotonic(), 0
    say(f"seed {seed}")
    for _ in fuzzing.run(seconds=60 * options.minutes, tries=options.tries):
        minutes = (time.monotonic() - began) / 60
        counts = "  ".join(f"{name} {count.tries}" for name, count in fuzzing.counts.items())
        say(f"{minutes:5.1f} min  {counts}  failures {len(fuzzing.failures)}")
        for failure in fuzzing.failures[told:][:MOST_SHOWN]:
            say(f"  {failure.path}: {failure.reason.strip().splitlines()[-1]}")
        told = len(fuzzing.failures)
    say(fuzzing.table())
    return 1 if fuzzing.failures else 0


def say(text: str) -> int:
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
