"""A social network and what its people do, after LSBench: posts, likes, photos, positions.  Queries are in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from cqels.scenarios.scenario import Asked, Data, Progress, Scenario
from cqels.scenarios.social.happenings import (
    like_texts,
    make_photos,
    make_posts,
    photo_texts,
    position_texts,
    post_texts,
)
from cqels.scenarios.social.network import make_network, static_lines

STREAMS = "http://deri.org/"
_TABLE = "JWS 2016, tables 1 and 2, with count windows"

_WINDOWS = {"triples": "10000", "likes": "1000"}


def _published(speed: float, memory: float, anew: float) -> dict[str, float]:
    """The rows "CQELS", and of the speed "R-CQELS" too, which evaluates anew."""
    return {"triples/s": speed, "MB": memory, "anew triples/s": anew}


_FIGURES = {
    "q1": _published(118_924, 374, 24_122),
    "q2": _published(96_789, 370, 8_462),
    "q3": _published(88_647, 380, 9_828),
    "q4": _published(60_467, 398, 1_304),
    "q5": _published(52_890, 389, 7_459),
    "q6": _published(44_391, 402, 3_491),
    "q10": _published(103_698, 370, 2_326),
}
_TITLES = {
    "q1": "everything that the post stream tells of one user",
    "q2": "the posts of one person",
    "q3": "the posts of one person's friends",
    "q4": "pairs of posts of the same user with the same hashtag",
    "q5": "photos that show somebody and are liked by a friend of that one",
    "q6": "posts in a channel that somebody follows, liked by a friend",
    "q7": "posts of the last ten seconds that nobody has liked",
    "q8": "friends who are near each other, by the last position of each",
    "q9": "what happens among one person's friends: their posts, the photos that show them",
    "q10": "how many posts each hashtag has",
    "q11": "the ten hashtags of the last minute with most posts",
    "q12": "channels with half as many posts again as channels have on average",
}


def _asked() -> Iterator[Asked]:
    for name, title in _TITLES.items():
        yield Asked(name, title, _FIGURES.get(name, {}), _TABLE if name in _FIGURES else "", {"user": "3"})
    for name, figures in _FIGURES.items():
        yield Asked(f"{name}-count", f"{_TITLES[name]}, in count windows", figures, _TABLE, {"user": "3", **_WINDOWS})


class Social(Scenario):
    """Users with friends and channels, and five streams of what they do."""

    name = "social"
    title = "Social network (LSBench)"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "small": {"users": 20, "posts": 90, "rate": 4},
        "medium": {"users": 1_000, "posts": 46_000, "rate": 100},
        "large": {"users": 10_000, "posts": 460_000, "rate": 100},
    }
    queries = tuple(_asked())

    def make(self, folder: Path, numbers: Mapping[str, int], seed: int, progress: Progress) -> Data:
        """For each three posts there are six likes, a photo and two of its likes, and two positions."""
        random = np.random.default_rng(seed)
        count, rate = numbers["posts"], numbers["rate"]
        network = make_network(numbers["users"], random)
        posts = make_posts(network, count, rate, random)
        photos = make_photos(network, count // 3, rate / 3, random)
        streams = {
            "poststream": post_texts(network, posts, random),
            "likedpoststream": like_texts(network, posts, "post/po", count * 2, random),
            "photostream": photo_texts(network, photos, random),
            "likedphotostream": like_texts(network, photos, "photo/ph", count // 3 * 2, random),
            "gpsstream": position_texts(network, count // 3 * 2, rate * 2 / 3, random),
        }
        facts, done, total = {"elements": 0, "triples": 0}, 0, count + 2 * count + count // 3 * 5
        for name, pieces in streams.items():
            facts[name] = 0
            with (folder / f"{name}.nt").open("w", encoding="ascii", newline="") as file:
                for piece in pieces:
                    text = "".join(piece)
                    file.write(text)
                    facts[name] += text.count("\n")
                    done += len(piece)
                    progress(done, total)
            facts["triples"] += facts[name]
        users = folder / "users.nt"
        lines = list(static_lines(network))
        users.write_text("".join(lines), encoding="ascii", newline="")
        facts |= {"elements": done, "static": len(lines)}
        declared = tuple(f"<{STREAMS}{name}>={folder / name}.nt{_element(name)}" for name in streams)
        return Data(declared, ((users, None),), facts=facts)


def _element(stream: str) -> str:
    """A like is a line; all else is several lines of one time."""
    return "" if stream.startswith("liked") else "?element=time"


SCENARIO = Social()
