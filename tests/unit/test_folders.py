"""What is run or trusted lies in folders that belong to the user alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cqels import Engine
from cqels.lang import cache as grammar
from cqels.model import folders
from cqels.model.errors import CqelsError
from cqels.model.folders import private_folder
from cqels.spark.operator.arena_files import Arenas

QUERY = "SELECT ?s WHERE { STREAM <http://ex.org/obs> [RANGE 10s] { ?s ?p ?o } }"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_is_made_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = private_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert made == tmp_path.resolve() / "a" / "b"
    assert mode(made) == mode(made.parent) == 0o700
    assert private_folder(made) == made


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    for each in (0o777, 0o770, 0o1777):
        (tmp_path / "open").chmod(each)
        with pytest.raises(CqelsError, match="is not used: others can write in it") as caught:
            private_folder(tmp_path / "open")
        assert "chmod 700" in (caught.value.hint or "")
    (tmp_path / "open").chmod(0o755)
    assert private_folder(tmp_path / "open")


def test_a_folder_that_others_can_exchange_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(CqelsError, match="others can rename what is in"):
        private_folder(tmp_path / "shared" / "mine")
    assert private_folder(tmp_path / "shared" / "mine", below=tmp_path / "shared")
    (tmp_path / "shared").chmod(0o1777)
    assert private_folder(tmp_path / "shared" / "mine")


def test_links_and_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    (tmp_path / "file").touch()
    for name, reason in (("link", "a link"), ("nowhere", "a link"), ("file", "not a folder")):
        with pytest.raises(CqelsError, match=f"it is {reason}"):
            private_folder(tmp_path / name)
    assert private_folder(tmp_path / "link" / "below") == tmp_path.resolve() / "real" / "below"


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_folder(tmp_path / "mine")
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    with pytest.raises(CqelsError, match="it belongs to user"):
        private_folder(tmp_path / "mine")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_what_another_user_put_there_before_is_not_run() -> None:
    """Another user makes the folder of the temporary directory first, with a program in it."""
    with tempfile.TemporaryDirectory() as folder:
        _squat(Path(folder))


def _squat(shared: Path) -> None:
    victim, attacker = 65534, 5
    shared.chmod(0o1777)
    squat = shared / f"cqels-{victim}"
    squat.mkdir()
    squat.chmod(0o777)
    os.chown(squat, attacker, attacker)
    code = (  # their Python may not be theirs to read: so all is imported first
        "import os, pwd; from pathlib import Path; from cqels.model.folders import cache_root\n"
        "import cqels.spark.session.java as java; os.setgid(65534); os.setuid(65534)\n"
        "home = java._wrapped(Path('/usr/bin/true')); print(cache_root(), (home / 'bin' / 'java').owner())"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("XDG_CACHE_HOME", "CQELS_CACHE_DIR")}
    environment |= {"HOME": "/nonexistent", "TMPDIR": str(shared)}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["None", "nobody"]
    assert "is not used: it belongs to" in told.stderr
    assert list(squat.iterdir()) == []


def test_the_cache_passes_over_what_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("CQELS_CACHE_DIR", str(tmp_path / "open"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    folders.cache_root.cache_clear()
    try:
        assert folders.cache_part("kernels") == tmp_path.resolve() / "own" / "cqels" / "kernels"
        assert "others can write in it" in caplog.text
    finally:
        folders.cache_root.cache_clear()


def test_the_parser_is_kept_without_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "cache_part", lambda part: private_folder(tmp_path / part))
    text = 'start: "a"+ number?\nnumber: /[0-9]+/'
    options = {"parser": "lalr", "maybe_placeholders": True, "propagate_positions": True}
    made = grammar.parser_of(text, **options)
    (file,) = (tmp_path / "grammar").iterdir()
    assert mode(file) == 0o600
    assert file.read_bytes().startswith(b'{"data"')
    monkeypatch.setattr(grammar, "Lark", _Loaded)
    again = grammar.parser_of(text, **options)
    assert again.parse("aaa12") == made.parse("aaa12")
    assert again.parse("a") == made.parse("a")


class _Loaded(grammar.Lark):
    """It is read, not made."""

    def __init__(self, *_: object, **__: object) -> None:
        raise AssertionError("the parser is made again")


def test_a_damaged_file_of_the_parser_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "cache_part", lambda part: private_folder(tmp_path / part))
    text, options = 'start: "a"', {"parser": "lalr"}
    grammar.parser_of(text, **options)
    (file,) = (tmp_path / "grammar").iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:100], b"[1]", b"\x80\x04]", whole.replace(b'"rules"', b'"roles"')):
        file.write_bytes(damaged)
        assert grammar.parser_of(text, **options).parse("a")
        assert len(file.read_bytes()) == len(whole)


def test_the_memory_of_an_engine_is_for_the_user_alone(tmp_path: Path) -> None:
    with Engine(memory=tmp_path / "memory") as engine:
        engine.register(QUERY)
        assert mode(tmp_path / "memory") == 0o600
    arenas = Arenas(tmp_path, "engine")
    with Engine(memory=arenas.make()):
        (folder,) = (each for each in tmp_path.iterdir() if each.is_dir())
        assert mode(folder) == 0o700
    other = tmp_path / "other"
    other.mkdir()
    (other / "arenas").symlink_to(tmp_path)
    with pytest.raises(CqelsError, match="it is a link"):
        Arenas(other, "engine").make()
