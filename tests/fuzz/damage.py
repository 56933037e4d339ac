"""Damage to bytes: what a disk, a copy or a wrong program does to a file."""

from __future__ import annotations

from random import Random

PAGE = 4096
WAYS = ("bit", "bit", "bytes", "word", "truncate", "page", "extend", "duplicate", "remove")


def damaged(data: bytes, draw: Random) -> bytes:
    """Other bytes than these, in one of the ways in which they become so."""
    while (found := _changed(data, draw)) == data:
        pass
    return found


def _changed(data: bytes, draw: Random) -> bytes:
    content = bytearray(data)
    place = draw.randrange(len(content)) if content else 0
    match draw.choice(WAYS) if content else "extend":
        case "bit":
            content[place] ^= 1 << draw.randrange(8)
        case "bytes":
            for _ in range(10):
                content[draw.randrange(len(content))] = draw.randrange(256)
        case "word":
            place = place // 8 * 8
            content[place : place + 8] = draw.randbytes(min(8, len(content) - place))
        case "truncate":
            del content[place:]
        case "page":
            content[place : place + PAGE] = bytes(len(content[place : place + PAGE]))
        case "extend":
            content += draw.randbytes(draw.randrange(1, 100))
        case "duplicate":
            content[place : place + 8] = content[place + 8 : place + 16]
        case "remove":
            del content[place : place + draw.randrange(1, 64)]
    return bytes(content)
