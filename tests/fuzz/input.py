"""Damaged bytes of streams in every format: the checks of `test_input_bytes`, by seeds."""

from __future__ import annotations

import json
from dataclasses import asdict
from random import Random

from .harness import Kind
from .test_input_bytes import FORMATS, SIZE, TOKENS, Damage, check_file, check_rows, check_run


def draw(random: Random) -> bytes:
    changes = [_damage(random) for _ in range(random.randint(1, 2))]
    written = [{**asdict(change), "by": change.by.hex()} for change in changes]
    way = random.choice(["file", "file", "run", "rows"])
    return json.dumps({"way": way, "format": random.choice([*FORMATS]), "changes": written}).encode()


def _damage(random: Random) -> Damage:
    by = random.choice(TOKENS) if random.random() < 0.6 else random.randbytes(random.randrange(5))
    return Damage(random.randrange(SIZE), random.random(), random.choice([0, 0, 1, 1, 3, 10, 1000]), by)


def check(case: bytes) -> None:
    content = json.loads(case)
    changes = [Damage(**each | {"by": bytes.fromhex(each["by"])}) for each in content["changes"]]
    match content["way"]:
        case "file":
            check_file(content["format"], changes)
        case "run":
            check_run(content["format"], changes)
        case _:
            check_rows(changes[0])


INPUT = Kind("input", draw, check)
