"""What a checkpoint is tied to and what a run tells, without Spark."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from cqels.model.errors import CqelsError
from cqels.pipeline.instance.program import Dataset
from cqels.pipeline.lift.row_lifts import nquads
from cqels.pipeline.lift.row_schemas import LATE, REJECTED
from cqels.pipeline.source.file_catalog import check_catalog_exists
from cqels.plan.algebra import Values
from cqels.spark.driver.app import App
from cqels.spark.driver.batch_results import rejected_in
from cqels.spark.driver.checkpoint import Checkpoint, Manifest, checksums, fits
from cqels.spark.driver.manifest_builder import check_outputs
from cqels.spark.driver.run import Run
from cqels.spark.sinks import Files
from cqels.store.dataset import Store

ROOMS = '@prefix : <http://ex.org/> . :s1 :in _:kitchen . _:kitchen :name "kitchen" .'


def manifest(**values: Any) -> Manifest:
    return Manifest(**({"id": "1", "instances": 1, "keys": [0], "start": 0, "streams": [], "data": ""} | values))


def loaded(folder: Path, text: str) -> Dataset:
    path = folder / "rooms.ttl"
    path.write_text(text)
    store = Store()
    store.load(path)
    return Dataset.of(store)


def test_data_is_the_same_whatever_its_blank_nodes_are_called(tmp_path: Path) -> None:
    first, again = loaded(tmp_path, ROOMS), loaded(tmp_path, ROOMS)
    assert first.quads != again.quads
    assert first.digest == again.digest
    assert loaded(tmp_path, ROOMS + " :s2 :in _:kitchen .").digest != first.digest


def test_blank_nodes_keep_their_names(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    first, again = loaded(tmp_path, ROOMS), loaded(tmp_path, ROOMS)
    assert checkpoint.dataset(loaded(tmp_path, ROOMS)).digest == first.digest  # and then the process is killed
    assert checkpoint.dataset(first) == first
    checkpoint.write(manifest(data=first.digest))
    assert Checkpoint(tmp_path / "checkpoint").dataset(again) == first


def test_a_checkpoint_that_is_damaged_is_refused(tmp_path: Path) -> None:
    """Whatever bit of a file of ours has changed, and whatever is gone."""
    checkpoint = Checkpoint(tmp_path)
    dataset = loaded(tmp_path, ROOMS)
    checkpoint.dataset(dataset)
    checkpoint.write(manifest(data=dataset.digest, queries={"hot": "1f"}))
    for name, taken_up in (("cqels.json", checkpoint.read), ("data.nq", lambda: checkpoint.dataset(dataset))):
        path = tmp_path / name
        content = path.read_bytes()
        draw = random.Random(3)
        for place in {draw.randrange(8 * len(content)) for _ in range(300)}:
            changed = bytearray(content)
            changed[place // 8] ^= 1 << place % 8
            path.write_bytes(changed)
            with pytest.raises(CqelsError, match="damaged"):
                taken_up()
        path.write_bytes(content[:-5])
        with pytest.raises(CqelsError, match="damaged"):
            taken_up()
        path.write_bytes(content)
        taken_up()
    (tmp_path / "data.nq").unlink()
    with pytest.raises(CqelsError, match="is gone"):
        checkpoint.dataset(dataset)


def test_a_file_that_is_gone_is_missed(tmp_path: Path) -> None:
    """What would be made anew is not, where something refers to what there was."""
    checkpoint = Checkpoint(tmp_path)
    now = manifest()
    checkpoint.keep_answers({"key": Values(("s",), ())}, now)
    checkpoint.write(now)
    assert checkpoint.answers(checkpoint.read()).keys() == {"key"}
    (tmp_path / "services").unlink()
    with pytest.raises(CqelsError, match="services is gone"):
        checkpoint.answers(checkpoint.read())
    assert checkpoint.answers(manifest()) == {}
    (tmp_path / "cqels.json").unlink()
    assert checkpoint.read() is None
    offsets = tmp_path / "spark" / "offsets"
    offsets.mkdir(parents=True)
    with pytest.raises(CqelsError, match=r"cqels\.json is gone"):
        checkpoint.read()
    (offsets / ".0.crc").write_bytes(checksums(b""))
    assert not checkpoint.is_planned
    (offsets / "0").touch()
    assert checkpoint.is_planned
    commits = tmp_path / "spark" / "commits"
    commits.mkdir()
    (commits / "0").touch()
    checkpoint.tidy()
    (commits / "1").touch()
    with pytest.raises(CqelsError, match="offsets/1 is gone"):
        checkpoint.tidy()
    with pytest.raises(CqelsError, match=r"files\.jsonl is gone"):
        check_catalog_exists(tmp_path / "files")


def test_other_releases_are_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    (tmp_path / "cqels.json").write_text('{"id": "1", "version": 2}')
    with pytest.raises(CqelsError, match=r"before 0\.2"):
        checkpoint.read()
    checkpoint.write(manifest(version=99, release="9.9"))
    with pytest.raises(CqelsError, match=r"written by cqels 9\.9"):
        checkpoint.read()


def test_a_checkpoint_has_one_run_at_a_time(tmp_path: Path) -> None:
    first, second = Checkpoint(tmp_path / "state"), Checkpoint(tmp_path / "state")
    first.lock()
    with pytest.raises(CqelsError, match=rf"is in use by process {os.getpid()} on .*, since 20"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_the_files_of_spark_are_what_was_written(tmp_path: Path) -> None:
    """A killed process may leave state that does not fit its checksum, of a micro-batch that is not done."""

    def put(path: Path, content: bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.with_name(f".{path.name}.crc").write_bytes(checksums(content))
        return path

    spark = tmp_path / "state" / "spark"
    files = [put(spark / "offsets" / "1", b"v1" * 400), put(spark / "commits" / "0", b"v1")]
    files += [put(spark / "state" / "0" / "0" / f"{version}.changelog", b"x" * 512 * version) for version in (1, 2)]
    files += [put(spark / "state" / "0" / "_stateSchema" / "default" / "0_1f", b"schema")]
    (spark / "offsets" / ".1.half.tmp").write_bytes(b"x")
    (spark / "offsets" / "..1.half.tmp.crc").write_bytes(b"x")
    checkpoint = Checkpoint(tmp_path / "state")
    checkpoint.tidy()
    assert sum(path.is_file() for path in spark.glob("**/*")) == 2 * len(files)
    for path in files:
        content = path.read_bytes()
        for changed in (content[:-1], content + b"x", b"y" + content[1:]):
            path.write_bytes(changed)
            if path.suffix == ".changelog":
                checkpoint.tidy()
                assert path.exists() == (path.stem == "1"), "the other is of what is not done, and made again"
                assert not path.with_name(f".{path.name}.crc").exists(), "it is of what was replaced"
            else:
                with pytest.raises(CqelsError, match=rf"{path.name} is damaged"):
                    checkpoint.tidy()
            put(path, content)


def test_a_checkpoint_may_be_moved(tmp_path: Path) -> None:
    """Spark notes where it wrote the schema of state."""
    state = tmp_path / "now" / "spark" / "state" / "0"
    content = {"stateStoreInfo": [{"storeName": "default", "stateSchemaFilePaths": ["file:/before/default/0_1f"]}]}
    metadata, checksum = state / "_metadata" / "v2" / "0", state / "_metadata" / "v2" / ".0.crc"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"v2\n{json.dumps(content)}")
    checksum.write_bytes(checksums(metadata.read_bytes()))
    Checkpoint(tmp_path / "now").tidy()
    version, _, text = metadata.read_text().partition("\n")
    assert version == "v2"
    (store,) = json.loads(text)["stateStoreInfo"]
    assert store == {
        "storeName": "default",
        "stateSchemaFilePaths": [f"file:{state}/_stateSchema/default/0_1f"],
    }
    assert fits(metadata, checksum)
    before = metadata.stat().st_mtime_ns
    Checkpoint(tmp_path / "now").tidy()
    assert metadata.stat().st_mtime_ns == before, "it is where it was"


def test_what_to_do_where_results_are_gone_is_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def app(source: str) -> App:
        made = App(lambda: pytest.fail("Spark is not needed"), checkpoint=tmp_path / "state")
        if source == "files":
            made.files(f"<http://ex.org/a>={tmp_path}/a.nt")
        else:
            rows: Any = SimpleNamespace()
            made.stream("http://ex.org/a", rows, lift=nquads(time="kafka"))
        made.add("SELECT ?s { STREAM <http://ex.org/a> [NOW] { ?s ?p ?o } }", name="q")
        return made

    def taken_up(choice: str, source: str = "files") -> tuple[Manifest | None, Files]:
        sink = Files(tmp_path / "out.csv")
        made = app(source)
        return check_outputs(checkpoint, made.queries, made._sources, (sink, None), choice), sink

    checkpoint = Checkpoint(tmp_path / "state")
    checkpoint.write(manifest(id="1", queries={"q": "f"}, outputs=[f"{tmp_path / 'out.csv'}"]))
    with pytest.raises(CqelsError, match=r"out\.csv is gone") as refused:
        taken_up("stop")
    assert "continue" in str(refused.value.hint)
    assert "rebuild" in str(refused.value.hint)
    assert taken_up("continue")[0] is not None
    assert "goes on with what comes from now on" in caplog.text
    with pytest.raises(CqelsError, match=r"cannot be rebuilt: <http://ex.org/a> is not read from files"):
        taken_up("rebuild", "rows")
    before, sink = taken_up("rebuild")
    assert before is None
    assert checkpoint.read() is None
    assert (tmp_path / "state" / "before-1" / "cqels.json").exists()
    sink.open(app("files").queries, run="2")
    sink.close()
    assert taken_up("stop")[0] is None  # a new checkpoint: nothing of it is gone


def test_a_query_is_known_by_its_text_where_it_is_planned_otherwise(tmp_path: Path) -> None:
    app = App(lambda: pytest.fail("Spark is not needed"))
    app.files(f"<http://ex.org/a>={tmp_path}/a.nt")
    text = "SELECT ?s { STREAM <http://ex.org/a> [NOW] { ?s ?p ?o } }"
    app.add(text, name="q")
    for known, print in ((text, "of an older release"), (text.replace("NOW", "ALL"), "of this one")):
        before = manifest(queries={"q": "of an older release"}, texts={"q": {"text": known}})
        now = manifest(queries={"q": "of this one"})
        app._manifests.recognize(before, now)
        assert now.queries == {"q": print}


def test_the_state_of_a_micro_batch_that_is_not_done_is_discarded(tmp_path: Path) -> None:
    """It is written again, perhaps with other bytes, and what follows builds on those."""
    spark = tmp_path / "spark"
    partition = spark / "state" / "0" / "1"
    names = ["7.changelog", "8.changelog", ".8.changelog.crc", "8.zip", ".9.changelog.crc", "9.changelog", "9.zip"]
    others = [partition / "_metadata" / "schema", spark / "state" / "0" / "_metadata" / "v2" / "9"]
    for path in [*(partition / name for name in names), *others]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    for log, last in (("offsets", 8), ("commits", 7)):
        (spark / log).mkdir()
        for batch in range(last + 1):
            (spark / log / str(batch)).write_text("")
    Checkpoint(tmp_path).discard_incomplete()
    assert sorted(each.name for each in partition.glob("*.*")) == sorted(names[:4])
    assert all(each.exists() for each in others)
    (spark / "commits" / "8").write_text("")
    (partition / "9.changelog").write_text("")
    Checkpoint(tmp_path).discard_incomplete()
    assert (partition / "9.changelog").exists(), "it is of a micro-batch that is done"


def test_a_late_element_is_told_once() -> None:
    """Each engine tells of it, with the triples that it has of it."""

    def row(instance: int, kind: str, text: str) -> Any:
        return SimpleNamespace(instance=instance, kind=kind, query=None, place="", reason="", text=text)

    rows = [
        row(0, REJECTED, "odd"),
        row(0, LATE, "a ."),
        row(0, LATE, ""),
        row(2, LATE, ""),
        row(2, LATE, "b ."),
        row(2, LATE, "c ."),
    ]
    assert [each.text for each in rejected_in(rows)] == ["odd", "a .", "b .", "c ."]
    assert rejected_in([]) == []


def test_a_paced_run_that_had_read_all_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No micro-batch tells it that all streams have ended, if it was killed after the last one."""
    monkeypatch.setattr("cqels.spark.driver.run.SparkFiles", SimpleNamespace(getRootDirectory=lambda: str(tmp_path)))
    options: dict[str, Any] = {"ends": True, "paced": True, "strict": False, "temporary": False}
    app: Any = SimpleNamespace(queries=(), parts={})
    run = Run(app, Checkpoint(tmp_path), manifest(ended=True), [], None, None, **options)
    idle: Any = SimpleNamespace(
        isActive=True, processAllAvailable=lambda: None, stop=lambda: None, exception=lambda: None
    )
    run._query = idle
    run._wait_for_all(idle)
    assert run.wait(1)
    known = Checkpoint(tmp_path).read()
    assert known is not None
    assert known.finished
