"""The judge of the suites is judged: what counts as the same result, and what does not."""

from __future__ import annotations

from pyoxigraph import BlankNode, Literal, NamedNode

from .compare import by_value_in, same_graph, same_rows

A, B = BlankNode("a"), BlankNode("b")
P = NamedNode("http://example.org/p")
DOUBLE = NamedNode("http://www.w3.org/2001/XMLSchema#double")
EXACT = by_value_in(())


def test_blank_nodes_are_renamed_one_to_one() -> None:
    assert same_rows([{"x": A, "y": B}, {"x": B, "y": A}], [{"x": B, "y": A}, {"x": A, "y": B}], EXACT)
    assert not same_rows([{"x": A, "y": A}], [{"x": A, "y": B}], EXACT)
    assert not same_rows([{"x": A, "y": B}], [{"x": A, "y": A}], EXACT)
    assert not same_rows([{"x": A}], [{"x": P}], EXACT)


def test_a_partner_is_tried_again_where_the_first_does_not_work_out() -> None:
    found = [{"x": A}, {"x": B}, {"x": B, "y": P}]
    wanted = [{"x": A}, {"x": B}, {"x": A, "y": P}]
    assert same_rows(found, wanted, EXACT)


def test_bags_lists_and_lax_bags() -> None:
    one, two = {"x": Literal(1)}, {"x": Literal(2)}
    assert same_rows([one, two], [two, one], EXACT)
    assert not same_rows([one, one], [one], EXACT)
    assert not same_rows([one, two], [two, one], EXACT, ordered=True)
    assert same_rows([one, two], [one, one, two], EXACT, lax=True)
    assert not same_rows([one, one, two], [one, two], EXACT, lax=True)
    assert not same_rows([one], [one, two], EXACT, lax=True)


def test_an_unbound_variable_is_not_an_empty_text() -> None:
    assert not same_rows([{}], [{"x": Literal("")}], EXACT)


def test_computed_numbers_are_compared_by_value_and_datatype() -> None:
    found, wanted = [{"x": Literal("1.0", datatype=DOUBLE)}], [{"x": Literal("1E0", datatype=DOUBLE)}]
    assert not same_rows(found, wanted, EXACT)
    assert same_rows(found, wanted, by_value_in({"x"}))
    assert not same_rows([{"x": Literal(1)}], wanted, by_value_in({"x"}))


def test_graphs() -> None:
    assert same_graph([(A, P, B)], [(B, P, A)])
    assert not same_graph([(A, P, B)], [(A, P, A)])
