"""A few tries of each kind; and the harness sees what goes wrong, and writes a case that repeats it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cqels.plan import prepare

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from .__main__ import main
from .damage import damaged
from .harness import Fuzzing, Kind
from .kinds import KINDS
from .queries import corpus

FEW = {"queries": 15, "checkpoints": 15, "answers": 15, "loaded": 10, "snapshots": 5, "sequences": 5}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_few_tries(kind: Kind) -> None:
    for seed in range(FEW.get(kind.name, 2)):
        kind.check(kind.case(seed))


def test_a_case_is_of_its_seed() -> None:
    for kind in KINDS.values():
        if kind.name not in ("snapshots", "checkpoints"):  # which are of what is written now
            assert kind.case(3) == kind.case(3) != kind.case(4)


def test_queries_are_taken_from_everywhere() -> None:
    assert len(corpus()) > 300
    assert any("STREAM" in each.text for each in corpus())


def test_damage_is_always_seen() -> None:
    random = Random(5)
    for data in (b"", b"x", b"\0" * 40, bytes(range(200))):
        assert all(damaged(data, random) != data for _ in range(300))


# ---------------------------------------------------------------- planted faults


def numbers(random: Random) -> bytes:
    return str(random.randrange(4)).encode()


def planted(case: bytes) -> None:
    match int(case):
        case 0:
            raise ValueError("planted")
        case 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 2:
            time.sleep(100)


def test_what_goes_wrong_leaves_a_case(tmp_path: Path) -> None:
    kind = Kind("planted", numbers, planted, "case", limit=0.5)
    fuzzing = Fuzzing([kind], folder=tmp_path)
    list(fuzzing.run(tries=12))
    drawn = [int(kind.case(seed)) for seed in range(12)]
    assert {*drawn} == {0, 1, 2, 3}
    assert fuzzing.counts["planted"].tries == 12
    assert [failure.seed for failure in fuzzing.failures] == [seed for seed, what in enumerate(drawn) if what < 3]
    said = ["ValueError: planted", "ended by SIGSEGV", "not done after 0.5 seconds"]
    for failure in fuzzing.failures:
        what = drawn[failure.seed]
        assert failure.path.read_bytes() == str(what).encode()
        written = failure.path.with_suffix(".txt").read_text()
        assert said[what] in written
        assert f"python -m tests.fuzz --repeat {failure.path}" in written
    assert "planted                 12           " in fuzzing.table()


def test_a_fault_of_the_product_is_found_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that is no user's error, of some queries only."""

    def faulty(parsed: Any, **options: Any) -> Any:
        if options["lenient"] is False and options["policy"]:
            raise KeyError("planted")
        return bind(parsed, **options)

    bind = prepare.bind
    monkeypatch.setattr(prepare, "bind", faulty)
    assert main(["--kind", "queries", "--tries", "20", "--seed", "0", "--cases", str(tmp_path)]) == 1
    written = next(tmp_path.glob("queries-*.json"))
    with pytest.raises(KeyError, match="planted"):
        main(["--repeat", str(written)])
    monkeypatch.undo()
    assert main(["--repeat", str(written)]) == 0
