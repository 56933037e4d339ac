"""The state of an engine instance in a folder: what ends its process never changes what it sends."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cqels.model.checksummed import seal_json, unseal_json
from cqels.model.errors import CqelsError, Damaged
from cqels.pipeline.instance import batch_log, durable_instance
from cqels.pipeline.instance.durable_instance import DurableInstance
from cqels.pipeline.instance.instance_commands import Arrival, registration

from .driving import EX, HOT, MEAN, OBS, block, opened, program, query, reading, readings, texts

HOT_QUERY, MEAN_QUERY = query(HOT, "hot"), query(MEAN, "mean", emit="changes")
BATCHES = 12


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing is slow, and only power cuts need it."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[str]]]:
    """The results of each batch of a run that nothing disturbs."""
    instance = opened(tmp_path_factory.mktemp("state"), HOT_QUERY, MEAN_QUERY)
    found = [texts(instance, instance.advance(number, readings(number), {"at": number})) for number in range(BATCHES)]
    instance.close()
    assert all(found)
    return found


def go_on(folder: Path) -> DurableInstance:
    return opened(folder, HOT_QUERY, MEAN_QUERY)


def test_a_run_goes_on(tmp_path: Path, undisturbed: list[Any]) -> None:
    """After each batch another process may do the next."""
    for number, expected in enumerate(undisturbed):
        instance = go_on(tmp_path)
        if number:
            assert instance.last is not None
            assert (instance.last.batch, instance.last.note) == (number - 1, {"at": number - 1})
            assert texts(instance, instance.last) == undisturbed[number - 1]
        assert texts(instance, instance.advance(number, readings(number), {"at": number})) == expected
        instance.close()


@settings(max_examples=12, deadline=None)
@given(some.lists(some.sampled_from(["again", "crash", "snapshot", "torn", "back", "other"]), max_size=24))
def test_crashes_at_any_time_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, undisturbed: list[Any], steps: list[str]
) -> None:
    """Batches that come again, crashes, snapshots, torn records and steps back: results are those of each batch."""
    folder = tmp_path_factory.mktemp("state")
    instance = go_on(folder)
    for number, expected in enumerate(undisturbed):
        for step in steps[2 * number : 2 * number + 2]:
            if step == "again" and number:
                assert texts(instance, instance.advance(number - 1, readings(number - 1))) == undisturbed[number - 1]
            elif step == "other":  # something else comes first, and then what came in the other runs
                instance.advance(number, readings(number + 3, 5))
            elif step == "back" and number and instance.batch > instance._saved_batch:
                instance.advance(number - 1, readings(number + 3, 5))
                instance.advance(number - 1, readings(number - 1), {"at": number - 1})
            elif step == "snapshot":
                instance.maintain(now=True)
            elif step in ("crash", "torn"):
                instance.close()
                last = max(folder.glob("log-*"))
                if step == "torn":
                    last.write_bytes(last.read_bytes() + b"\x01\x02\x03")
                instance = go_on(folder)
        if instance.batch == number and instance.batch <= instance._saved_batch:
            break  # a snapshot has what else came, which nothing takes back
        assert texts(instance, instance.advance(number, readings(number), {"at": number})) == expected
    instance.close()
    shutil.rmtree(folder)


# ---------------------------------------------------------------- snapshots


def advanced(folder: Path, batches: int = 4, *, fork: bool = False) -> DurableInstance:
    instance = DurableInstance(folder, program([HOT_QUERY, MEAN_QUERY]), fork=fork)
    instance.recover()
    for number in range(batches):
        instance.advance(number, readings(number), {"at": number})
    return instance


def test_a_snapshot_replaces_the_log(tmp_path: Path, undisturbed: list[Any]) -> None:
    """And the results of the last batch are there again, though the log has none."""
    instance = advanced(tmp_path)
    instance.maintain(now=True)
    instance.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "data",
        "lock",
        "log-00000001",
        "snapshot-00000001",
        "state.json",
    ]
    instance = go_on(tmp_path)
    assert texts(instance, instance.last) == undisturbed[3]
    assert texts(instance, instance.advance(3, readings(3))) == undisturbed[3]
    assert texts(instance, instance.advance(4, readings(4))) == undisturbed[4]
    instance.close()


def test_a_snapshot_is_written_beside_a_run(tmp_path: Path, undisturbed: list[Any]) -> None:
    """By a forked process, while other threads are at work and batches go on."""
    ended = threading.Event()
    busy = [threading.Thread(target=lambda: [json.dumps([*range(50)]) for _ in iter(ended.is_set, True)]) for _ in "ab"]
    for each in busy:
        each.start()
    try:
        instance = advanced(tmp_path, fork=True)
        instance.maintain(now=True)
        assert instance.snapshots == 0
        for number in range(4, BATCHES):
            assert texts(instance, instance.advance(number, readings(number))) == undisturbed[number]
        instance.finish_snapshot()
        assert instance.snapshots == 1
    finally:
        ended.set()
        for each in busy:
            each.join()
    instance.close()
    assert not [*tmp_path.glob("*.tmp")]
    instance = go_on(tmp_path)
    assert (instance.batch, texts(instance, instance.last)) == (BATCHES - 1, undisturbed[-1])
    instance.close()


def test_a_snapshot_that_is_not_completed_leaves_no_trace(tmp_path: Path, undisturbed: list[Any]) -> None:
    """The run is killed while it is written: what there was before it is still there."""
    instance = advanced(tmp_path, fork=True)
    instance.maintain(now=True)
    instance.advance(4, readings(4))
    instance._writer.abandon()
    (tmp_path / "snapshot-00000001").unlink(missing_ok=True)
    (tmp_path / "snapshot-00000001.tmp").write_bytes(b"half of it")
    instance.close()
    instance = go_on(tmp_path)
    assert texts(instance, instance.last) == undisturbed[4]
    instance.maintain(now=True)
    assert sorted(path.name for path in tmp_path.glob("*-*")) == ["log-00000002", "snapshot-00000002"]
    instance.close()


def test_a_snapshot_that_cannot_be_written_is_said_and_the_log_goes_on(
    tmp_path: Path, undisturbed: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    instance = advanced(tmp_path, fork=True)
    (tmp_path / "snapshot-00000001.tmp").mkdir()
    instance.maintain(now=True)
    assert "snapshot-00000001 could not be written, and the log goes on: is a directory" in caplog.text
    instance.advance(4, readings(4))
    instance.close()
    (tmp_path / "snapshot-00000001.tmp").rmdir()
    instance = go_on(tmp_path)
    assert texts(instance, instance.last) == undisturbed[4]
    instance.close()


def test_a_log_that_has_grown_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_instance, "LEAST_LOG", 1500)
    instance = advanced(tmp_path, 1)
    size = instance.log_bytes
    for number in range(1, 40):
        instance.advance(number, readings(number))
        assert instance.log_bytes <= max(instance.snapshot_bytes, 1500) + 4 * size
    assert instance.snapshots > 1 or instance.log_bytes < instance.snapshot_bytes
    instance.close()


def test_an_error_leaves_what_was_there(
    tmp_path: Path, undisturbed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full ends the run with a sentence; what the log has is not touched."""
    instance = advanced(tmp_path)

    def full(file: int, data: Any) -> None:
        os.write(file, bytes(memoryview(data)[:10]))
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(batch_log, "write_all", full)
        with pytest.raises(CqelsError, match="log-00000000 cannot be written: no space left on device"):
            instance.advance(4, readings(4))
        with pytest.raises(CqelsError, match="can only be recovered"):
            instance.advance(4, readings(4))
    instance.close()
    instance = go_on(tmp_path)
    assert texts(instance, instance.last) == undisturbed[3]
    assert texts(instance, instance.advance(4, readings(4))) == undisturbed[4]
    instance.close()


# ---------------------------------------------------------------- what is refused


def test_one_run_at_a_time(tmp_path: Path) -> None:
    instance = advanced(tmp_path)
    with pytest.raises(CqelsError, match=f"is in use by process {os.getpid()} on") as error:
        go_on(tmp_path)
    assert error.value.hint == "one run at a time has the state: stop that one, or wait for its end"
    instance.close()
    go_on(tmp_path).close()


def test_the_process_that_writes_a_snapshot_does_not_have_the_folder(tmp_path: Path) -> None:
    """If the run is killed, the next one need not wait for it."""
    instance = advanced(tmp_path, fork=True)
    instance.maintain(now=True)
    child, instance._writer._child = instance._writer._child, 0
    instance.close()
    go_on(tmp_path).close()
    os.waitpid(child, 0)


@pytest.mark.parametrize("name", ["state.json", "data", "log-00000001", "snapshot-00000001"])
def test_a_file_that_is_gone_is_missed(tmp_path: Path, name: str) -> None:
    instance = advanced(tmp_path)
    instance.maintain(now=True)
    instance.advance(4, readings(4))
    instance.close()
    (tmp_path / name).unlink()
    with pytest.raises(Damaged, match=f"{name} is gone" if not name.startswith("snapshot") else "is gone"):
        go_on(tmp_path)


def test_a_segment_at_the_end_that_is_gone_is_missed(tmp_path: Path) -> None:
    instance = advanced(tmp_path, fork=True)
    instance.maintain(now=True)
    instance.advance(4, readings(4))
    instance._writer.abandon()
    instance.close()
    (tmp_path / "snapshot-00000001").unlink(missing_ok=True)
    (tmp_path / "log-00000001").unlink()
    with pytest.raises(Damaged, match="log-00000001 is gone"):
        go_on(tmp_path)


@pytest.mark.parametrize("name", ["state.json", "data", "snapshot-00000001"])
def test_a_byte_that_is_flipped_is_found(tmp_path: Path, name: str) -> None:
    instance = advanced(tmp_path)
    instance.maintain(now=True)
    instance.close()
    data = (tmp_path / name).read_bytes()
    for at in range(0, len(data), 1 + len(data) // 40):
        flipped = bytearray(data)
        flipped[at] ^= 16
        (tmp_path / name).write_bytes(flipped)
        with pytest.raises(CqelsError) as error:
            go_on(tmp_path)
        assert "damaged" in error.value.message
        assert "\n" not in error.value.message
    (tmp_path / name).write_bytes(data)
    go_on(tmp_path).close()


def test_another_run_is_refused_with_the_differences(tmp_path: Path) -> None:
    advanced(tmp_path).close()
    other = query(MEAN.replace("5s", "6s"), "mean")

    def refusal(given: DurableInstance) -> str:
        with pytest.raises(CqelsError) as error:
            given.recover()
        assert error.value.hint is not None
        return error.value.message

    changed = replace(program([HOT_QUERY]), start=7)
    assert refusal(DurableInstance(tmp_path, changed)).endswith("is of another run: the start was 0 and is 7")
    late = replace(program([]), streams=(replace(program([]).streams[0], lateness=5),))
    assert f"lateness of stream <{OBS}> was 0 and is 5" in refusal(DurableInstance(tmp_path, late))
    assert f"there is no stream <{OBS}> any more" in refusal(DurableInstance(tmp_path, program([], streams=[EX + "b"])))
    data = program([], data=f"INSERT DATA {{ <{EX}a> <{EX}b> 1 }}")
    assert "the static data has changed" in refusal(DurableInstance(tmp_path, data))
    assert "query mean has changed" in refusal(DurableInstance(tmp_path, program([HOT_QUERY, other])))
    (tmp_path / "cqels.json").write_text("{}")
    assert "is the checkpoint of a run on Spark" in refusal(DurableInstance(tmp_path, program([HOT_QUERY])))


def test_a_newer_release_is_told(tmp_path: Path) -> None:
    advanced(tmp_path).close()
    content = unseal_json((tmp_path / "state.json").read_text(), "it")
    (tmp_path / "state.json").write_text(seal_json(content | {"version": 9, "release": "9.9"}))
    with pytest.raises(CqelsError, match=r"was written by cqels 9\.9"):
        go_on(tmp_path)


# ---------------------------------------------------------------- what may change


@pytest.mark.parametrize("snapshot", [True, False])
def test_queries_are_added_and_dropped_between_runs(tmp_path: Path, undisturbed: list[Any], *, snapshot: bool) -> None:
    """Those that stay keep their state; one that is added sees what comes from then on."""
    instance = opened(tmp_path, HOT_QUERY)
    for number in range(4):
        assert texts(instance, instance.advance(number, readings(number)))["hot"] == undisturbed[number]["hot"]
    instance.maintain(now=snapshot)
    instance.close()
    instance = opened(tmp_path, HOT_QUERY, MEAN_QUERY)
    assert len(instance.pending) == 1
    found = texts(instance, instance.advance(4, readings(4)))
    assert found["hot"] == undisturbed[4]["hot"]
    assert found["mean"][0].startswith("0 ")
    instance.maintain(now=snapshot)
    instance.close()
    instance = opened(tmp_path, MEAN_QUERY)
    assert texts(instance, instance.last) == found
    assert [*texts(instance, instance.advance(5, readings(5)))] == ["mean"]
    instance.maintain(now=snapshot)
    instance.close()
    instance = opened(tmp_path, MEAN_QUERY)
    assert [*instance.queries] == ["mean"]
    assert not instance.pending
    instance.close()


@pytest.mark.parametrize("snapshot", [True, False])
def test_queries_and_data_that_commands_changed_stay(tmp_path: Path, *, snapshot: bool) -> None:
    """Whatever the program of the next run has."""
    rooms = query(f"SELECT ?r ?t WHERE {{ STREAM <{OBS}> [NOW] {{ ?s <{EX}temp> ?t }} ?s <{EX}in> ?r }}", "rooms")
    instance = opened(tmp_path, HOT_QUERY)
    update = json.dumps({"update": f"INSERT DATA {{ <{EX}s1> <{EX}in> <{EX}kitchen> }}"})
    commands = [Arrival(command=registration(rooms)), Arrival(command=update)]
    assert texts(instance, instance.advance(0, [*commands, block([reading(1, 20, 1)])]))["rooms"]
    instance.maintain(now=snapshot)
    instance.close()
    instance = opened(tmp_path, HOT_QUERY)
    assert [*instance.queries] == ["hot", "rooms"]
    (found,) = texts(instance, instance.advance(1, [block([reading(1, 21, 2)])]))["rooms"]
    assert "kitchen" in found
    instance.close()


@pytest.mark.parametrize("snapshot", [True, False])
def test_streams_are_added_between_runs(tmp_path: Path, *, snapshot: bool) -> None:
    """Behind streams that queries made."""
    made = query(
        f"REGISTER STREAM <{EX}made> AS CONSTRUCT {{ ?s <{EX}a> ?t }} WHERE {{ STREAM <{OBS}> [NOW] {{ ?s ?p ?t }} }}",
        EX + "made",
    )
    any_stream = query("SELECT ?g ?s WHERE { STREAM ?g [NOW] { ?s ?p ?o } }", "any")
    for number in range(4):
        streams = [OBS, EX + "other", EX + "third"][: 1 + (number + 1) // 2]
        instance = opened(tmp_path, made, any_stream, streams=streams)
        arrivals = [
            block([reading(10 * number + at, 20, number)], source=at, stream=stream)
            for at, stream in enumerate(streams)
        ]
        outcome = instance.advance(number, arrivals)
        assert outcome.report.elements == len(streams)
        found = " ".join(texts(instance, outcome)["any"])
        assert f"{EX}made" in found
        assert OBS in found
        instance.advance(number, arrivals)
        instance.maintain(now=snapshot)
        instance.close()
    with pytest.raises(CqelsError, match=r"there is no stream <.*third> any more"):
        opened(tmp_path, made, any_stream, streams=[OBS, EX + "other"])
