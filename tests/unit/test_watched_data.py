"""Static files that are watched, and what a change of the dataset is as a command."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from pyoxigraph import NamedNode

from cqels.model.errors import CqelsError
from cqels.pipeline.instance.instance_commands import dataset_change, update_command
from cqels.pipeline.instance.program import Dataset
from cqels.pipeline.source.watched_data import FileChange, WatchedData, WatchedFile
from cqels.store.dataset import Store

FIRST = "<u:s1> <u:in> <u:hall> . <u:s2> <u:in> <u:hall> . _:b <u:near> <u:hall> ."


def watched(tmp_path: Path, text: str = FIRST, name: str = "rooms.ttl") -> WatchedFile:
    (tmp_path / name).write_text(text)
    return WatchedFile(str(tmp_path / name))


def look(data: WatchedData) -> list[FileChange]:
    """A file is read when it is the same at two looks."""
    assert list(data.changes()) == []
    return list(data.changes())


def triples(store: Store, graph: NamedNode | None = None) -> set[str]:
    return {" ".join(map(str, triple)) for triple in store.triples(graph)}


def test_a_changed_file_is_a_difference(tmp_path: Path) -> None:
    file, store = watched(tmp_path), Store()
    data = WatchedData([file])
    assert data.load(store) == 3
    assert look(data) == []
    watched(tmp_path, FIRST.replace("s2> <u:in> <u:hall", "s2> <u:in> <u:attic"))
    (change,) = look(data)
    assert [(len(change.removed), len(change.added))] == [(1, 1)]
    change.apply(store)
    change.keep()
    assert {each for each in triples(store) if "s2" in each} == {"<u:s2> <u:in> <u:attic>"}
    assert look(data) == []


def test_what_another_watched_file_has_stays(tmp_path: Path) -> None:
    one, other, store = watched(tmp_path), watched(tmp_path, "<u:s1> <u:in> <u:hall> .", "more.ttl"), Store()
    data = WatchedData([one, other])
    data.load(store)
    watched(tmp_path, "<u:s9> <u:in> <u:hall> .")
    (change,) = look(data)
    change.apply(store)
    assert triples(store) == {"<u:s9> <u:in> <u:hall>", "<u:s1> <u:in> <u:hall>"}


def test_a_malformed_version_is_said_and_the_old_one_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, store = watched(tmp_path), Store()
    data = WatchedData([file])
    data.load(store)
    watched(tmp_path, "<u:s1> <u:in")
    assert look(data) == []
    assert look(data) == []
    assert caplog.text.count("the new version of") == 1
    Path(file.path).unlink()
    assert look(data) == []
    assert "is gone: what it had stays" in caplog.text
    watched(tmp_path, "<u:s1> <u:in> <u:cellar> .")
    assert len(look(data)) == 1


def test_a_later_run_goes_back_to_the_version_that_it_began_with(tmp_path: Path) -> None:
    file, folder = watched(tmp_path), tmp_path / "watched"
    before, data = Store(), WatchedData([file])
    data.load(before)
    data.open(folder)
    watched(tmp_path, FIRST.replace("s2", "s3"))
    later, again = Store(), WatchedData([file])
    again.load(later)
    again.go_back(later, folder)
    assert triples(later) == triples(before)
    (change,) = look(again)
    change.apply(later)
    change.keep()
    assert {each for each in triples(later) if "s3" in each}
    last, data = Store(), WatchedData([file])
    data.load(last)
    data.go_back(last, folder)
    assert look(data) == []
    assert triples(last) == triples(before)  # what became of it engines know
    made = dataset_change(json.loads(change.command))
    assert made is not None
    made(last)
    assert triples(last) == triples(later)


def test_an_update_is_the_quads_that_it_changes() -> None:
    store = Store()
    command = update_command(store, "INSERT DATA { <u:a> <u:b> _:x . GRAPH <u:g> { <u:a> <u:b> 007 } }")
    assert command is not None
    assert len(store) == 0
    copies = [Store(), Store()]
    for copy in copies:
        change = dataset_change(json.loads(command))
        assert change is not None
        change(copy)
    assert Dataset.of(copies[0]) == Dataset.of(copies[1])
    assert triples(copies[0], NamedNode("u:g")) == {'<u:a> <u:b> "007"^^<http://www.w3.org/2001/XMLSchema#integer>'}
    store = copies[0]
    assert update_command(store, "INSERT DATA { GRAPH <u:g> { <u:a> <u:b> 007 } }") is None
    command = update_command(store, "DROP GRAPH <u:g>; INSERT DATA { <u:c> <u:d> 1 }; DELETE WHERE { <u:c> ?p ?o }")
    assert command is not None
    assert json.loads(command)["add"] == ""
    assert (json.loads(command)["graphs"], len(store)) == ([], 2)
    assert update_command(store, "CREATE GRAPH <u:h>") is not None
    with pytest.raises(CqelsError, match="an update of type int"):
        update_command(store, 5)  # type: ignore[arg-type]


def test_a_change_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cqels")
    data = WatchedData([watched(tmp_path)])
    data.load(Store())
    watched(tmp_path, FIRST + "<u:s9> <u:in> <u:hall> .")
    look(data)
    assert "has changed: 0 triples less, 1 more" in caplog.text
