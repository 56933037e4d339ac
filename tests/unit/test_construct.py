"""What a CONSTRUCT makes of solutions that come and go."""

from __future__ import annotations

import cqels

OBS = "http://ex.org/obs"
QUERY = f"CONSTRUCT {{ ?s <x:in> _:b . _:b <x:is> ?o }} WHERE {{ STREAM <{OBS}> [RANGE 4s] {{ ?s <x:p> ?o }} }}"


def test_a_solution_has_the_same_blank_nodes_when_it_goes() -> None:
    with cqels.Engine() as engine:
        query = engine.register(QUERY, emit="changes")
        for number in range(6):
            engine.push(OBS, f"<x:s{number % 4}> <x:p> {number} .", time=f"{3 * number}s")
        engine.heartbeat("60s")
        rows = query.take()
    came = [row.triples for row in rows if row.sign == "+"]
    gone = [row.triples for row in rows if row.sign == "-"]
    assert came == gone
    assert len({triple[2] for triples in came for triple in triples if triple[1].value == "x:in"}) == 6
