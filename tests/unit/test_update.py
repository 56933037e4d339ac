"""SPARQL updates as text: exact literals, one notice for one script, all or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyoxigraph import NamedNode

from cqels.model.errors import CqelsError
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions
from cqels.store.script import execute

PREFIX = "PREFIX : <http://ex.org/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "
G = NamedNode("http://ex.org/g")


def rows(store: Store, graph: NamedNode | None = None) -> set[str]:
    found = (" ".join(map(str, triple)) for triple in store.triples(graph))
    return {text.replace("http://ex.org/", ":").replace("http://www.w3.org/2001/XMLSchema#", "xsd:") for text in found}


def updated(*texts: str) -> Store:
    store = Store()
    for text in texts:
        execute(store, PREFIX + text)
    return store


def test_literals_keep_their_form() -> None:
    store = updated('INSERT DATA { :a :p 007, 1.50, "1"^^xsd:boolean }')
    execute(store, PREFIX + "DELETE DATA { :a :p 1.5 } ; DELETE DATA { :a :p 007 }")
    assert rows(store) == {'<:a> <:p> "1.50"^^<xsd:decimal>', '<:a> <:p> "1"^^<xsd:boolean>'}


def test_modify_deletes_before_it_inserts() -> None:
    store = updated(
        "INSERT DATA { :a :p :x . :b :p :x GRAPH :g { :a :p :y } }",
        "DELETE { ?s :p :x } INSERT { ?s :q :x . ?s :r [] } WHERE { ?s :p :x FILTER(?s != :b) }",
        "WITH :g DELETE { ?s ?p ?o } INSERT { ?s ?p :z } WHERE { ?s ?p ?o }",
        "DELETE WHERE { :b ?p ?o }",
    )
    assert {text.split("_:")[0] for text in rows(store)} == {"<:a> <:q> <:x>", "<:a> <:r> "}
    assert rows(store, G) == {"<:a> <:p> <:z>"}


def test_graph_management() -> None:
    store = updated("INSERT DATA { :a :p 1 }", "COPY DEFAULT TO :g", "INSERT DATA { :b :p 2 }", "ADD DEFAULT TO :g")
    assert len(rows(store, G)) == 2
    execute(store, PREFIX + "MOVE :g TO :h ; CLEAR DEFAULT ; CREATE GRAPH :k ; DROP SILENT GRAPH :nothing")
    assert {name.value for name in store.named_graphs()} == {"http://ex.org/h", "http://ex.org/k"}
    execute(store, "DROP ALL")
    assert len(store) == 0
    assert store.named_graphs() == ()


def test_load_reads_a_file(tmp_path: Path) -> None:
    (tmp_path / "d.ttl").write_text("<http://ex.org/a> <http://ex.org/p> 1 .")
    store = Store(permissions=Permissions.of(allow_load=tmp_path))
    execute(store, PREFIX + f"LOAD <{(tmp_path / 'd.ttl').as_uri()}> INTO GRAPH :g")
    assert len(rows(store, G)) == 1
    for iri in ("urn:x", "ftp://ex.org/d.ttl", f"file://ex.org{tmp_path}/d.ttl"):
        with pytest.raises(CqelsError, match="LOAD reads files"):
            execute(store, f"LOAD <{iri}>")


def test_load_reads_only_in_folders_that_are_allowed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "d.ttl").write_text("<http://ex.org/a> <http://ex.org/p> 1 .")
    (inside / "link.ttl").symlink_to(outside / "d.ttl")
    (inside / "folder.ttl").mkdir()
    store = Store(permissions=Permissions.of(allow_load=[inside]))
    execute(store, f"LOAD <{(inside / 'd.ttl').as_uri()}>")
    assert len(rows(store)) == 1
    places = (outside / "d.ttl", inside / "link.ttl", inside / ".." / "outside" / "d.ttl", Path("/etc/hostname.nt"))
    for place in places:
        with pytest.raises(CqelsError, match="is in no folder that LOAD may read") as caught:
            execute(store, f"LOAD <file://{place}> INTO GRAPH <http://ex.org/g>")
        assert "--allow-load" in (caught.value.hint or "")
    with pytest.raises(CqelsError, match="not a regular file"):
        execute(store, f"LOAD <{(inside / 'folder.ttl').as_uri()}>")
    (inside / "circle.ttl").symlink_to(inside / "circle.ttl")
    for name in ("circle.ttl", "d.ttl%00.nt", "x" * 5_000):
        with pytest.raises(CqelsError, match="cannot be read: "):
            execute(store, f"LOAD <{inside.as_uri()}/{name}>")
        execute(store, f"LOAD SILENT <{inside.as_uri()}/{name}>")
    execute(store, f"LOAD SILENT <{(outside / 'd.ttl').as_uri()}> INTO GRAPH <http://ex.org/g>")
    assert "LOAD SILENT goes on without it" in caplog.text
    assert store.named_graphs() == ()
    assert store.load(outside / "d.ttl") == 1  # what the program itself asks for is allowed


def test_a_script_is_one_change_or_none() -> None:
    store = updated("INSERT DATA { :a :p 1 }")
    told: list[frozenset[NamedNode | None]] = []
    store.subscribe(told.append)
    with pytest.raises(CqelsError, match="does not exist"):
        execute(store, PREFIX + "INSERT DATA { :b :p 1 } ; CLEAR GRAPH :nothing")
    assert len(rows(store)) == 1
    assert told == []
    execute(store, PREFIX + "INSERT DATA { :b :p 1 } ; INSERT DATA { GRAPH :g { :c :p 1 } }")
    assert told == [frozenset({None, G})]


def test_an_error_has_its_place() -> None:
    with pytest.raises(CqelsError, match="<update>:1:15"):
        execute(Store(), "INSERT DATA { foaf:a <u:p> 1 }")
    with pytest.raises(CqelsError, match="an update cannot read a stream"):
        execute(Store(), "INSERT { ?s <u:p> 1 } WHERE { STREAM <u:s> { ?s ?p ?o } }")
