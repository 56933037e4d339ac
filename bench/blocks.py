"""Blocks on their way to Spark's engines: bytes for each triple, and triples packed and unpacked in a second.

python bench/blocks.py --triples 1000000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from time import perf_counter

from cqels.ingest.encode import Intake
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.pipeline.lift.block_format import pack, unpack

XSD = "http://www.w3.org/2001/XMLSchema#"
SOSA = "http://www.w3.org/ns/sosa/"


def readings(count: int) -> bytes:
    """Readings of 1,000 sensors as decimals, one each millisecond."""
    lines = (
        f"<http://ex.org/sensor/{n * 7919 % 1000}> <http://ex.org/temp> "
        f'"{n * 31 % 10_000 / 100:.2f}"^^<{XSD}decimal> {n} .'
        for n in range(count)
    )
    return "\n".join(lines).encode()


def observations(count: int) -> bytes:
    """Observations that each have an IRI of their own, as SSN has them: three triples for each."""
    lines = (
        line
        for n in range(count // 3)
        for line in (
            f"<http://ex.org/observation/{n}> <{SOSA}madeBySensor> <http://ex.org/s/{n % 500}> {n} .",
            f'<http://ex.org/observation/{n}> <{SOSA}hasSimpleResult> "{n % 977}"^^<{XSD}integer> {n} .',
            f"<http://ex.org/observation/{n}> <{SOSA}observedProperty> <http://ex.org/p/{n % 9}> {n} .",
        )
    )
    return "\n".join(lines).encode()


def new_intake() -> Intake:
    return Intake(Terms(ArenaDictionary(Arena())))


def refuse(line: int, reason: str, text: str) -> None:
    raise ValueError(f"line {line + 1}: {reason}")


def best(times: int, work: Callable[[], object]) -> float:
    def once() -> float:
        start = perf_counter()
        work()
        return perf_counter() - start

    return min(once() for _ in range(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triples", type=int, default=300_000)
    parser.add_argument("--block", type=int, default=100_000, help="elements in a block")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    write = sys.stdout.write
    write(f"{'data':<14}{'block':<9}{'text B':>8}{'block B':>9}{'tokenize':>11}{'pack':>9}{'unpack':>9}  M triples/s\n")
    for make in (readings, observations):
        data = make(options.triples)
        intake = new_intake()
        batch, _, _ = intake.lines(0, data, reject=refuse)
        count = len(batch)
        parts = [batch[at : at + options.block] for at in range(0, count, options.block)]
        dictionary = intake.terms.dictionary
        read = best(options.repeat, lambda data=data: new_intake().lines(0, data, reject=refuse))
        for compress in (False, True):
            blocks = [pack(each, dictionary, compress=compress) for each in parts]
            packing = best(
                options.repeat,
                lambda c=compress, p=parts, d=dictionary: [pack(each, d, compress=c) for each in p],
            )

            def unpacked(blocks: list[bytes] = blocks) -> None:
                other = ArenaDictionary(Arena())
                for each in blocks:
                    unpack(each, other)

            unpacking = best(options.repeat, unpacked)
            size = sum(map(len, blocks)) / count
            rates = "".join(f"{count / each / 1e6:>{w}.1f}" for each, w in ((read, 11), (packing, 9), (unpacking, 9)))
            write(
                f"{make.__name__:<14}{'lz4' if compress else 'plain':<9}{len(data) / count:>8.0f}{size:>9.1f}{rates}\n"
            )


if __name__ == "__main__":
    main()
