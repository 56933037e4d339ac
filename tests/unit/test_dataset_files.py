"""Static files of every RDF format, and where their faults are."""

import gzip
from pathlib import Path

import pytest
from pyoxigraph import DefaultGraph, Literal, NamedNode, Quad

from cqels.ingest import read_graph
from cqels.ingest.dataset_files import file_and_options
from cqels.model.errors import DataError
from cqels.model.terms import XSD

FILES = {
    "a.nt": "<x:a> <x:p> <x:b> .",
    "a.nq": "<x:a> <x:p> <x:b> .",
    "a.ttl": "@prefix x: <x:> . x:a x:p x:b .",
    "a.trig": "{ <x:a> <x:p> <x:b> }",
    "a.rdf": '<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="x:">'
    '<r:Description r:about="x:a"><x:p r:resource="x:b"/></r:Description></r:RDF>',
    "a.jsonld": '{"@id": "x:a", "x:p": {"@id": "x:b"}}',
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_formats(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / (name + suffix)
    content = FILES[name].encode()
    path.write_bytes(gzip.compress(content) if suffix else content)
    (quad,) = read_graph(path)
    assert [str(term) for term in quad.triple] == ["<x:a>", "<x:p>", "<x:b>"]
    assert quad.graph_name == DefaultGraph()
    (quad,) = read_graph(path, NamedNode("x:g"))
    assert quad.graph_name == NamedNode("x:g")


def test_named_graphs_stay_and_blank_nodes_belong_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.nq"
    path.write_text("_:a <x:p> _:a <x:h> .\n")
    (first,), (second,) = read_graph(path, NamedNode("x:g")), read_graph(path, NamedNode("x:g"))
    assert first.graph_name == NamedNode("x:h")
    assert first.subject == first.object != second.subject


def test_relative_iris_are_resolved_against_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ttl"
    path.write_text("<> <x:p> <#b> .")
    (quad,) = read_graph(path)
    assert quad.subject == NamedNode(path.resolve().as_uri())


def test_a_fault_is_shown_in_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.ttl"
    path.write_text("@prefix x: <x:> .\nx:a x:p x:b .\nx:a x:p y:b .\n")
    with pytest.raises(DataError) as caught:
        list(read_graph(path))
    assert str(caught.value).splitlines() == [
        "the prefix y: has not been declared",
        f"  --> {path}:3:9",
        "   | x:a x:p y:b .",
        "   |         ^^^",
    ]


def test_n3_and_files_whose_names_do_not_tell(tmp_path: Path) -> None:
    turtle = "@prefix : <x:> . :a :p 21.5 ."
    expected = [Quad(NamedNode("x:a"), NamedNode("x:p"), Literal("21.5", datatype=NamedNode(XSD + "decimal")))]
    contents = {"a.n3": turtle, "a.data": turtle, "b": "# first\n<x:a> <x:p> 21.5 .", "c.txt": "<x:a> <x:p> 21.5 ."}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        assert list(read_graph(tmp_path / name)) == expected, name
    for name, content in (("d", "<x:a> <x:p> <x:b> <x:g> .\n"), ("e", "<x:g> { <x:a> <x:p> <x:b> }")):
        (tmp_path / name).write_text(content)
        assert [str(quad.graph_name) for quad in read_graph(tmp_path / name)] == ["<x:g>"], name
    (tmp_path / "f").write_text('{"@id": "x:a", "x:p": {"@id": "x:b"}}')
    (tmp_path / "g").write_text(FILES["a.rdf"])
    assert list(read_graph(tmp_path / "f"))
    assert list(read_graph(tmp_path / "g"))


def test_a_format_that_is_given(tmp_path: Path) -> None:
    path = tmp_path / "odd.nt"
    path.write_text("@prefix : <x:> . :a :p :b .")
    assert len(list(read_graph(path, format="turtle"))) == 1
    assert file_and_options(f"{path}?format=Turtle") == (str(path), "Turtle", False)
    assert file_and_options(f"{path}?watch") == (str(path), None, True)
    assert file_and_options(f"{path}?watch=false&format=nt") == (str(path), "nt", False)
    assert len(list(read_graph(path, format="Turtle"))) == 1
    with pytest.raises(DataError, match="'n4' is not a format"):
        read_graph(path, format="n4")
    with pytest.raises(DataError, match="'graph=x' is not an option"):
        file_and_options(f"{path}?graph=x")
    marked = tmp_path / "what?.ttl"
    marked.write_text("")
    assert file_and_options(str(marked)) == (str(marked), None, False)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.nt.gz", gzip.compress(FILES["a.nt"].encode(), mtime=0)[:-9], "the file cannot be read"),
        ("a.nt.gz", "<x:a> <x:p> <x:b> .", "the file cannot be read"),
        ("a.pdf", "%PDF", "neither the file.s extension nor its content tells its format"),
        ("a.rdf", "<a/>", "namespaces are required"),
        ("a.jsonld", '{"@context": "http://ex.org/c"}', "remote contexts"),
        ("a.ttl", "<< <x:a> <x:b> 1 >> <x:c> 2 .", "not part of RDF 1.1"),
        ("a.nt", "<x:a> <x:b> .", "object"),
        ("none.nt", None, "no such file"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, content: str | bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_graph(tmp_path / name))
    assert caught.value.message[0] == caught.value.message[0].lower()


def test_an_error_can_be_written_whatever_bytes_it_is_about(tmp_path: Path) -> None:
    """Neither the message nor the line that is shown has what no terminal takes, or another end of a line."""
    for name, content in {
        "a.ttl": b'<x:a> <x:b> "\xff\x00" .',
        "b.rdf": b"<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>\0\n\n</rdf:RDF>",
        "c.jsonld": b'{"@id": "x:\n"}',
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError) as caught:
            list(read_graph(tmp_path / name))
        assert "\n" not in caught.value.message
        assert str(caught.value).encode()
