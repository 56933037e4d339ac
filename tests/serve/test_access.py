"""Tokens and their rights: files and the environment, what is wrong with them, that nothing shows them, and what each
right lets one do on every path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cqels.live.live_run import LiveSettings
from cqels.model.errors import CqelsError
from cqels.serve import http_app
from cqels.serve.access import RIGHTS, VARIABLE, Access, Right, read_access
from cqels.serve.backend import Pipeline
from cqels.serve.http_app import HttpSettings
from cqels.serve.server import Address, Server
from cqels.serve.service import Service
from cqels.store.dataset import Store

READER, PUSHER = "reader-0123456789", "pusher-0123456789"


def _file(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def test_a_file_has_a_token_in_each_line(tmp_path: Path) -> None:
    text = f"# who\n{READER} read\n\n{PUSHER}  push read  # the sensors\nadmin-0123456789== admin\n"
    access = read_access(_file(tmp_path, text))
    assert access
    assert access.rights_of(READER) == {"read"}
    assert access.rights_of(PUSHER) == {"push", "read"}
    assert access.rights_of("admin-0123456789==") == set(RIGHTS)


def test_other_tokens_have_no_rights(tmp_path: Path) -> None:
    access = read_access(_file(tmp_path, f"{READER} read"))
    others = [None, "", READER[:-1], READER + "x", READER.upper(), "ü" * 20, "\udc80", "x" * 100_000, f"{READER} read"]
    assert [access.rights_of(each) for each in others] == [None] * len(others)


def test_without_tokens_everybody_may_do_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    access = read_access(None)
    assert not access
    assert access.rights_of(None) == access.rights_of("anything") == set(RIGHTS)


def test_tokens_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{READER} read; {PUSHER} push")
    assert read_access(None).rights_of(PUSHER) == {"push"}
    monkeypatch.setenv(VARIABLE, f"{READER} red")
    with pytest.raises(CqelsError, match=rf"^{VARIABLE}, line 1: there is no right 'red'"):
        read_access(None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no token in"),
        ("# nothing\n", "there is no token in"),
        ("short read", "line 1: a token has at least 16 characters"),
        (f"{READER}\n", "line 1: a token without rights"),
        (f"\n{READER} write", "line 2: there is no right 'write'"),
        (f"{READER} read\n{READER} push", "line 2: the token is there twice"),
        (f"{READER}ü read", "line 1: a token has only letters, digits"),
        (f'"{READER}" read', "line 1: a token has only letters, digits"),
        (b"\xff\xfe\x00 read", "are not a text"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_the_token(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(CqelsError) as raised:
        read_access(_file(tmp_path, text))
    assert message in raised.value.message
    assert READER not in str(raised.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(CqelsError, match="others can reach the tokens") as raised:
        read_access(_file(tmp_path, f"{READER} read", mode))
    assert (raised.value.hint or "").startswith("chmod 600")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CqelsError, match="cannot be read: no such file"):
        read_access(tmp_path / "none")
    with pytest.raises(CqelsError, match="cannot be read: is a directory"):
        read_access(tmp_path)


def test_nothing_shows_tokens() -> None:
    access = Access(((READER.encode(), frozenset({"read"})),))
    assert READER not in repr(access)
    assert access == Access(((READER.encode(), frozenset({"read"})),))


# ---------------------------------------------------------------- what each right lets one do


TOKENS = {right: f"{right}-0123456789abcdef" for right in RIGHTS}
KNOWN = Access(
    tuple(
        (token.encode(), frozenset(RIGHTS) if right == "admin" else frozenset({right}))
        for right, token in TOKENS.items()
    )
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pipeline = Pipeline(store=Store(), settings=LiveSettings(follow=True, lasting=True))
    service = Service(pipeline, tmp_path_factory.mktemp("rights"))
    with Server(service, Address(port=0), HttpSettings(access=KNOWN)) as server:
        yield server


def _routes(server: Server) -> list[tuple[str, str, Right | None]]:
    """All that the application has: what is new here is tested, too."""
    table = http_app._table(http_app.Routes(server.service, HttpSettings()))
    assert len(table) > 20
    return [(method, path, right) for method, path, right, _ in table]


def test_each_method_of_each_path_needs_its_right(served: Server) -> None:
    seen = []
    with httpx.Client(base_url=served.url, timeout=20) as client:
        for method, path, right in _routes(served):
            place = path.replace("{name:path}", "http://ex.org/rights")
            for given, token in {None: None, "other": "nobody-0123456789abcdef", **TOKENS}.items():
                headers = {"Content-Type": "text/turtle"} | ({"Authorization": f"Bearer {token}"} if token else {})
                answer = client.request(method, place, headers=headers, params={"wait": "0s"}, content=b"")
                expected = None
                if right is not None and given not in TOKENS:
                    expected = 401
                elif right is not None and given not in (right, "admin"):
                    expected = 403
                refused = answer.status_code if answer.status_code in (401, 403) else None
                seen.append((method, path, given, refused, expected))
    assert [each for each in seen if each[3] != each[4]] == []
    assert len([each for each in seen if each[4] == 403]) > 30


def test_the_description_tells_the_rights(served: Server) -> None:
    with httpx.Client(base_url=served.url) as client:
        paths = client.get("/openapi.json").json()["paths"]
    told = {
        (method.upper(), path): operation.get("security", [{"bearer": [None]}])[0]["bearer"][0]
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method != "parameters"
    }
    assert told == {(method, path.replace(":path", "")): right for method, path, right in _routes(served)}
