"""Tries in a process of their own, with a time limit; one that fails, ends its process or hangs leaves a case."""

from __future__ import annotations

import faulthandler
import multiprocessing
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from cqels.model.errors import CqelsError

FOLDER = Path("fuzz-cases")
"""Where cases are written unless another folder is given."""
START_LIMIT = 120.0
"""Seconds that a process has until it begins its first try."""
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Kind:
    """One kind of tries: `draw` makes the case of a try as bytes, `check` raises if something is wrong with it."""

    name: str
    draw: Callable[[Random], bytes]
    check: Callable[[bytes], None]
    extension: str = "json"
    limit: float = 60.0
    """Seconds of a try: one that takes longer hangs."""

    def case(self, seed: int) -> bytes:
        """The case of a seed: always the same."""
        return self.draw(Random(f"{self.name} {seed}"))


@dataclass(frozen=True)
class Failure:
    """A try that failed, and where its case is."""

    kind: str
    seed: int
    reason: str
    path: Path


@dataclass
class Count:
    """What came of the tries of a kind."""

    tries: int = 0
    failures: int = 0


@dataclass
class Worker:
    """A process that does tries of a kind, from a seed on, until it is told to stop."""

    kind: Kind
    seed: int
    most: int | None
    """Tries, if they are counted."""
    stop_at: float
    scratch: Path
    process: Any = None
    pipe: Connection | None = None
    deadline: float = 0.0
    trying: int | None = None
    """The seed of the try under way."""

    def start(self) -> None:
        ours, theirs = _FORK.Pipe(duplex=False)
        self.process = _FORK.Process(target=_work, args=(self, theirs), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of the parent: the child uses none of them
            self.process.start()
        theirs.close()
        self.pipe = ours
        self.trying, self.deadline = None, time.monotonic() + START_LIMIT

    def case(self, seed: int) -> Path:
        """Where the case of a try is: the next try may begin before anyone looks at this one."""
        return self.scratch / f"case-{seed}"

    @property
    def errors(self) -> Path:
        return self.scratch / "errors"


def _work(worker: Worker, pipe: Connection) -> None:
    """Do tries and tell of each: its seed when it begins, and then the traceback of its failure or nothing."""
    with worker.errors.open("w") as errors:
        faulthandler.enable(errors)
        seed, tries = worker.seed, 0
        while time.monotonic() < worker.stop_at and (worker.most is None or tries < worker.most):
            pipe.send(seed)
            faulthandler.dump_traceback_later(0.9 * worker.kind.limit, file=errors)
            pipe.send(_tried(worker, seed))
            seed, tries = seed + 1, tries + 1
        faulthandler.cancel_dump_traceback_later()
        pipe.send(None)


def _tried(worker: Worker, seed: int) -> str:
    try:
        case = worker.kind.case(seed)
        worker.case(seed).write_bytes(case)
        worker.kind.check(case)
    except BaseException:
        return traceback.format_exc()
    return ""


class Fuzzing:
    """Tries of some kinds in turn, and counts of them."""

    def __init__(self, kinds: list[Kind], *, seed: int = 0, folder: Path = FOLDER, jobs: int = 1) -> None:
        self.kinds, self.folder, self.jobs = kinds, folder, jobs
        self.counts = {kind.name: Count() for kind in kinds}
        self.failures: list[Failure] = []
        self._seeds = {kind.name: seed for kind in kinds}

    def run(
        self, *, seconds: float = float("inf"), tries: int | None = None, turn: float = 20.0, each: float = 60.0
    ) -> Iterator[None]:
        """Go on for so many seconds, `turn` of them for a kind at a time, or for so many tries of each kind.

        It yields every `each` seconds and at the end, so that the caller can tell how far it is.
        """
        began = told = time.monotonic()
        waiting = list(self.kinds)
        with TemporaryDirectory(prefix="cqels-fuzz-", ignore_cleanup_errors=True) as scratch:
            free = [Path(scratch) / str(number) for number in range(self.jobs)]
            for path in free:
                path.mkdir()
            working: list[Worker] = []
            while working or waiting:
                while free and waiting:
                    kind = waiting.pop(0)
                    stop_at = float("inf") if tries else min(time.monotonic() + turn, began + seconds)
                    worker = Worker(kind, self._seeds[kind.name], tries, stop_at, free.pop())
                    working.append(worker)
                    worker.start()
                multiprocessing.connection.wait([worker.pipe for worker in working], timeout=0.2)
                for worker in list(working):
                    if not self._goes_on(worker):
                        working.remove(worker)
                        free.append(worker.scratch)
                        if tries is None and time.monotonic() < began + seconds:
                            waiting.append(worker.kind)
                if time.monotonic() - told >= each:
                    told = time.monotonic()
                    yield
        yield

    def _goes_on(self, worker: Worker) -> bool:
        """Take what a worker tells. False if it is done; one that hangs or has died is replaced."""
        assert worker.pipe is not None
        try:
            while worker.pipe.poll():
                match worker.pipe.recv():
                    case None:
                        worker.process.join()
                        return False
                    case int(seed):
                        worker.trying, worker.deadline = seed, time.monotonic() + worker.kind.limit
                    case str(reason):
                        assert worker.trying is not None
                        self._done(worker, reason)
        except EOFError:
            worker.process.join()
            return self._replaced(worker, _ended(worker.process.exitcode))
        if time.monotonic() > worker.deadline:
            worker.process.kill()
            worker.process.join()
            return self._replaced(worker, f"it was not done after {worker.kind.limit:g} seconds")
        return True

    def _replaced(self, worker: Worker, reason: str) -> bool:
        if worker.trying is None:
            raise RuntimeError(f"a process for {worker.kind.name} did not begin: {reason}\n{worker.errors.read_text()}")
        self._done(worker, f"{reason}\n{worker.errors.read_text()}")
        if worker.most is not None and worker.most <= 0:
            return False
        worker.start()
        return True

    def _done(self, worker: Worker, reason: str) -> None:
        kind, seed = worker.kind, worker.trying
        assert seed is not None
        count = self.counts[kind.name]
        count.tries += 1
        worker.seed = self._seeds[kind.name] = seed + 1
        worker.most = None if worker.most is None else worker.most - 1
        case = worker.case(seed)
        if reason:
            count.failures += 1
            path = self._written(kind, seed, reason, case)
            self.failures.append(Failure(kind.name, seed, reason, path))
        case.unlink(missing_ok=True)

    def _written(self, kind: Kind, seed: int, reason: str, case: Path) -> Path:
        """Two files: the case, and beside it what happened and how to repeat it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{kind.name}-{seed}.{kind.extension}"
        path.write_bytes(case.read_bytes() if case.exists() else b"")
        path.with_suffix(".txt").write_text(
            f"kind {kind.name}, seed {seed}\nrepeat: python -m tests.fuzz --repeat {path}\n\n{reason}\n",
            errors="backslashreplace",
        )
        return path

    def table(self) -> str:
        """Kinds, tries and failures."""
        rows = [("kind", "tries", "failures")]
        rows += [(name, f"{count.tries:,}", f"{count.failures:,}") for name, count in self.counts.items()]
        rows += [("all", f"{sum(count.tries for count in self.counts.values()):,}", f"{len(self.failures):,}")]
        return "\n".join(f"{name:<14}{tries:>12}{failures:>12}" for name, tries, failures in rows)


def shown(error: CqelsError, *, placed: bool = False) -> None:
    """A user's error has one sentence, and a place if it must have one; it can be written anywhere."""
    assert error.message, "no message"
    assert "\n" not in error.message.strip(), error.message
    assert error.source is not None or not placed, f"no place: {error.message}"
    str(error).encode()


class Interrupted(BaseException):
    """What the handler of a signal raises, as KeyboardInterrupt is."""


def interrupted(work: Callable[[], Any], after: float) -> bool:
    """Do something that a signal may interrupt after some seconds, unless these are 0: whether it did."""

    def handle(*_: object) -> None:
        raise Interrupted

    before, hit = signal.signal(signal.SIGALRM, handle), False
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        hit = True
    while True:
        try:  # a signal may be on its way when the clock is stopped
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            return hit
        except Interrupted:
            hit = True


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"
