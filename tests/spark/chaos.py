"""Exactly once, whatever happens: a job on Spark is disturbed, and writes what one writes that nobody disturbs.

    python tests/spark/chaos.py                                # every kind as often as is usual, and a table
    python tests/spark/chaos.py --kind driver --times 20       # one kind; may be repeated
    python tests/spark/chaos.py --latency low                  # the job with its engine in the driver
    python tests/spark/chaos.py --seed 7 --keep folder

Processes are killed (`kills.py`), and what is around them fails (`disturbances.py`): such a job may also end with a
sentence that says why, and must go on when the cause is gone.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import monotonic

if not __package__:  # run as a script
    sys.path.insert(0, str(Path(__file__).parents[2]))
    __package__ = "tests.spark"

from .disturbances import DISTURBANCES, Skipped, Stage, Unexpected
from .jobs import Settings, committed, write_data
from .kills import KILLS, MEMORY, Story, Tormentor

KINDS = (*KILLS, *DISTURBANCES)
TIMES = dict.fromkeys(KILLS, 5) | dict.fromkeys(DISTURBANCES, 1) | {"state-damaged": 3}
"""How often, if nobody says."""

NOT_LOW = (MEMORY, "broker-restarted")
"""What a job of low latency does not have: engines in files of the machine; nor is the one of a topic of that kind."""

IDLE_LIVES = 3
"""Lives in a row in which nothing could be done to a job, after which that is a failure."""


@dataclass
class Report:
    """What was done, how often, and what went wrong."""

    story: Story = field(default_factory=Story)
    times: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        return self.story.right and not self.failures

    def __str__(self) -> str:
        kinds = [kind for kind in KINDS if self.times[kind] or kind in self.skipped or kind in self.failures]
        width = max(map(len, kinds), default=4)
        lines = [f"{'kind':{width}}  times  failures"]
        for kind in kinds:
            note = f"  skipped: {self.skipped[kind]}" if kind in self.skipped else ""
            lines.append(f"{kind:{width}}  {self.times[kind]:5}  {len(self.failures.get(kind, [])):8}{note}")
        story = self.story
        if story.kills:
            lines.append(f"lives: {story.rounds}, micro-batches: {story.batches}, errors: {story.errors}")
        if story.recoveries:
            times = sorted(story.recoveries)
            lines.append(f"from a restart to the first new result: {median(times):.1f} s, at most {times[-1]:.1f} s")
        lines += [f"{kind}: {told}" for kind, all_told in self.failures.items() for told in all_told]
        lines += [f"different after kills: {name}" for name in story.different]
        lines += [f"still there: process {each.id} {each.command[:80]!r}" for each in story.left]
        return "\n".join([*lines, "exactly once: " + ("yes" if self.right else "NO")]) + "\n"


def chaos(
    folder: Path,
    *,
    elements: int,
    batch_bytes: int,
    times: Mapping[str, int],
    seed: int = 0,
    latency: str = "normal",
    tell: Callable[[str], object] = lambda text: None,
) -> Report:
    """Disturb the job so many times; what kills asks for as many lives as it takes, all else for a life each time."""
    data = folder / "data"
    write_data(data, elements)
    settings = Settings(str(data), "", batch_bytes=batch_bytes, latency=latency)
    tormentor = Tormentor(settings, seed, tell)
    expected = tormentor.undisturbed(folder / "quiet")
    report = Report(tormentor.story)
    wanted = Counter({kind: times.get(kind, 0) for kind in KILLS})
    idle = 0
    while +wanted and idle < IDLE_LIVES:
        before = wanted.total()
        tormentor.torment(folder / f"life-{tormentor.story.rounds + 1}", expected, wanted)
        idle = idle + 1 if wanted.total() == before else 0
    for kind in +wanted:
        report.failures[kind] = [f"there was nothing to kill or to remove, {wanted[kind]} times to go"]
    report.times |= tormentor.story.kills
    tormentor.check_remains()
    batches = committed(folder / "quiet")
    for kind, disturb in DISTURBANCES.items():
        for number in range(times.get(kind, 0)):
            stage = Stage(
                folder / f"{kind}-{number + 1}", settings, expected, batches, random.Random(f"{seed} {kind} {number}")
            )
            began = monotonic()
            try:
                disturb(stage)
            except Skipped as reason:
                report.skipped[kind] = str(reason)
                break
            except (Unexpected, TimeoutError) as error:
                report.failures.setdefault(kind, []).append(f"{stage.folder.name}: {error}")
            finally:
                stage.end()
            report.times[kind] += 1
            told = "as it should" if not report.failures.get(kind) else report.failures[kind][-1]
            tell(f"{kind} {number + 1}, {monotonic() - began:.0f} s: {told}")
    return report


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, action="append", help="may be repeated (default: all)")
    parser.add_argument("--times", type=int, help="how often each kind (default: as many as a run of all takes)")
    parser.add_argument("--elements", type=int, default=6_000, help="of the larger stream (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=30_000, help="bytes of a micro-batch (default: %(default)s)")
    parser.add_argument("--latency", choices=["normal", "low"], default="normal", help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the choices (default: a new one)")
    parser.add_argument("--keep", type=Path, help="a folder for all files, which is not removed")
    options = parser.parse_args(arguments)
    folder = options.keep or Path(mkdtemp(prefix="cqels-chaos-"))
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    sys.stdout.write(f"seed {seed}\n")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # what was started is ended then too
    began = monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"{monotonic() - began:7.1f} s  {text}\n")
        sys.stdout.flush()

    kinds = [kind for kind in KINDS if options.latency == "normal" or kind not in NOT_LOW]
    try:
        report = chaos(
            folder.absolute(),
            elements=options.elements,
            batch_bytes=options.batch,
            times={kind: options.times or TIMES[kind] for kind in options.kind or kinds},
            seed=seed,
            latency=options.latency,
            tell=tell,
        )
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(str(report))
    return 0 if report.right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
