"""What people do, as streams: they post and like, take photos and like them, and are tracked where they go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cqels.scenarios.social.network import INTERESTS, SIB, SIOC, TYPE, VOCABULARY, Integers, Network, Random

START = 1_325_376_000_000
"""Milliseconds: 2012-01-01T00:00:00Z."""
PIECE = 2_000
"""Elements of which the text is made at once."""
DELAY = 5_000
"""Milliseconds after which something is liked, on average."""
DC = "http://purl.org/dc/elements/1.1/"
TITLE = "http://purl.org/dc/terms/title"
LOCATION = "http://dbpedia.org/ontology/location"
PROPERTY = "http://dbpedia.org/property/"
XSD = "http://www.w3.org/2001/XMLSchema#"
BROWSERS = ("Firefox", "Chrome", "Opera", "Safari")
AGENTS = ("iPhone", "Android", "Nokia", "desktop")


@dataclass(frozen=True, slots=True)
class Things:
    """Posts or photos: when each was made, by whom, and the users or channels it belongs to."""

    times: Integers
    users: Integers
    places: Integers
    """Of a post its channel, of a photo the first user it shows."""


def moments(count: int, rate: float, random: Random) -> Integers:
    """Times in milliseconds, no two the same, so many in a second on average."""
    gaps = 1 + random.exponential(max(0.0, 1000 / rate - 1), count)
    return START + np.cumsum(gaps.astype(np.int64))


def make_posts(network: Network, count: int, rate: float, random: Random) -> Things:
    """Two of three posts are on the own wall, the others on a channel that the author follows."""
    users = random.choice(network.users, count, p=network.activity)
    elsewhere = network.follows.one(users, random)
    return Things(moments(count, rate, random), users, np.where(random.random(count) < 0.67, users, elsewhere))


def make_photos(network: Network, count: int, rate: float, random: Random) -> Things:
    users = random.choice(network.users, count, p=network.activity)
    return Things(moments(count, rate, random), users, network.friends.one(users, random))


def post_texts(network: Network, posts: Things, random: Random) -> Iterator[list[str]]:
    """Each post is eleven to thirteen lines of one time: what it is, says and is about, its channel and its author."""
    count = len(posts.times)
    tags = _tags(network, posts.users, random)
    agents, addresses = random.integers(0, len(AGENTS), count), random.integers(0, 256, (count, 2))
    for begin in range(0, count, PIECE):
        some = slice(begin, begin + PIECE)
        yield [
            _post(*each)
            for each in zip(
                range(begin, count),
                posts.times[some].tolist(),
                _dates(posts.times[some]),
                posts.users[some].tolist(),
                posts.places[some].tolist(),
                tags[some],
                agents[some].tolist(),
                addresses[some].tolist(),
                strict=False,
            )
        ]


def _post(
    number: int, time: int, date: str, user: int, channel: int, tags: list[int], agent: int, address: list[int]
) -> str:
    post, end = f"<{SIB}post/po{number}>", f" {time} .\n"
    about = "".join(f'{post} <{VOCABULARY}hashtag> "tag{tag}"{end}' for tag in tags)
    return (
        f"{post} <{TYPE}> <{VOCABULARY}Post>{end}"
        f"{post} <{TYPE}> <{SIOC}Post>{end}"
        f'{post} <{TITLE}> "About tag{tags[0]}"{end}'
        f'{post} <{DC}created> "{date}"^^<{XSD}dateTime>{end}'
        f'{post} <{VOCABULARY}agent> "{AGENTS[agent]}"{end}'
        f'{post} <{VOCABULARY}browser> "{BROWSERS[agent]}"{end}'
        f'{post} <{SIOC}ip_address> "10.0.{address[0]}.{address[1]}"{end}'
        f'{post} <{SIOC}content> "What u{user} had to say about tag{tags[-1]} in the post of number {number}"{end}'
        f"<{SIB}forum/fo{channel}> <{SIOC}container_of> {post}{end}"
        f"<{SIB}user/u{user}> <{SIOC}creator_of> {post}{end}"
        f"{about}"
    )


def _tags(network: Network, users: Integers, random: Random) -> list[list[int]]:
    """One to three of the author's interests, each once."""
    first, sizes = random.integers(0, INTERESTS, len(users)), random.integers(1, 4, len(users))
    drawn = [network.interests[users, (first + step) % INTERESTS].tolist() for step in range(3)]
    return [list(dict.fromkeys(tags[:size])) for *tags, size in zip(*drawn, sizes.tolist(), strict=True)]


def photo_texts(network: Network, photos: Things, random: Random) -> Iterator[list[str]]:
    """Each photo is eleven or twelve lines of one time: what it is, where it was taken, its album, whom it shows."""
    count = len(photos.times)
    where = network.homes[photos.users] + random.uniform(-0.05, 0.05, (count, 2))
    second, agents = network.friends.one(photos.users, random), random.integers(0, len(AGENTS), count)
    for begin in range(0, count, PIECE):
        some = slice(begin, begin + PIECE)
        yield [
            _photo(*each)
            for each in zip(
                range(begin, count),
                photos.times[some].tolist(),
                _dates(photos.times[some]),
                photos.users[some].tolist(),
                photos.places[some].tolist(),
                second[some].tolist(),
                where[some].tolist(),
                agents[some].tolist(),
                strict=False,
            )
        ]


def _photo(
    number: int, time: int, date: str, user: int, shown: int, second: int, where: list[float], agent: int
) -> str:
    photo, end = f"<{SIB}photo/ph{number}>", f" {time} .\n"
    also = "" if second == shown else f"{photo} <{VOCABULARY}usertag> <{SIB}user/u{second}>{end}"
    return (
        f"{photo} <{TYPE}> <{VOCABULARY}Photo>{end}"
        f"{photo} <{TYPE}> <{SIOC}Item>{end}"
        f'{photo} <{LOCATION}> "{_town(where)}"{end}'
        f'{photo} <{PROPERTY}latd> "{where[0]:.4f}"^^<{XSD}decimal>{end}'
        f'{photo} <{PROPERTY}longd> "{where[1]:.4f}"^^<{XSD}decimal>{end}'
        f'{photo} <{VOCABULARY}agent> "{AGENTS[agent]}"{end}'
        f'{photo} <{VOCABULARY}browser> "{BROWSERS[agent]}"{end}'
        f'{photo} <{DC}created> "{date}"^^<{XSD}dateTime>{end}'
        f"<{SIB}album/a{user}> <{SIOC}container_of> {photo}{end}"
        f"<{SIB}user/u{user}> <{SIOC}creator_of> {photo}{end}"
        f"{photo} <{VOCABULARY}usertag> <{SIB}user/u{shown}>{end}"
        f"{also}"
    )


def like_texts(network: Network, things: Things, kind: str, count: int, random: Random) -> Iterator[list[str]]:
    """Likes of posts or photos: each is one line, a friend of whom it belongs to, some seconds after it was made."""
    liked = random.integers(0, len(things.times), count)
    times = things.times[liked] + 1 + random.exponential(DELAY, count).astype(np.int64)
    order = np.argsort(times, kind="stable")
    times, liked = times[order], liked[order]
    people = things.places[liked] if kind == "photo/ph" else things.users[liked]
    users = network.friends.one(people, random)
    for begin in range(0, count, PIECE):
        some = slice(begin, begin + PIECE)
        each = zip(users[some].tolist(), liked[some].tolist(), times[some].tolist(), strict=True)
        yield [f"<{SIB}user/u{user}> <{VOCABULARY}like> <{SIB}{kind}{thing}> {time} .\n" for user, thing, time in each]


def position_texts(network: Network, count: int, rate: float, random: Random) -> Iterator[list[str]]:
    """Each position is five lines of one time: whose it is, where, when, and the town."""
    times, users = moments(count, rate, random), random.integers(0, network.users, count)
    where = network.homes[users] + random.uniform(-0.01, 0.01, (count, 2))
    for begin in range(0, count, PIECE):
        some = slice(begin, begin + PIECE)
        each = zip(
            range(begin, count),
            times[some].tolist(),
            _dates(times[some]),
            users[some].tolist(),
            where[some].tolist(),
            strict=False,
        )
        yield [_position(*values) for values in each]


def _position(number: int, time: int, date: str, user: int, where: list[float]) -> str:
    position, end = f"<{SIB}gps/g{number}>", f" {time} .\n"
    return (
        f"<{SIB}user/u{user}> <{VOCABULARY}trackedAt> {position}{end}"
        f'{position} <{PROPERTY}latd> "{where[0]:.4f}"^^<{XSD}decimal>{end}'
        f'{position} <{PROPERTY}longd> "{where[1]:.4f}"^^<{XSD}decimal>{end}'
        f'{position} <{VOCABULARY}trackedTime> "{date}"^^<{XSD}dateTime>{end}'
        f'{position} <{VOCABULARY}trackedLocation> "{_town(where)}"{end}'
    )


def _town(where: list[float]) -> str:
    return f"Town {where[0]:.0f}-{where[1]:.0f}"


def _dates(times: Integers) -> list[str]:
    texts: list[str] = np.datetime_as_string(times.astype("datetime64[ms]"), unit="ms", timezone="UTC").tolist()
    return texts
