"""The folder of a run's state: nothing else is removed, and the state of another engine is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cqels.cli.state_folder import check_state, forget_state, is_begun
from cqels.model.errors import CqelsError
from cqels.model.folder_lock import FolderLock


def test_a_state_is_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forget_state(tmp_path / "nothing")
    folder = tmp_path / "state"
    (folder / "inbox").mkdir(parents=True)
    (folder / "state.json").touch()
    assert is_begun(folder)
    forget_state(folder)
    assert not folder.exists()
    assert capsys.readouterr().err == f"the state in {folder} is removed: the run begins anew\n"


def test_what_is_no_state_stays(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    with pytest.raises(
        CqelsError, match=r"is not the state of a run, or not only: it has letter\.txt; it is left as it is"
    ):
        forget_state(tmp_path)
    with pytest.raises(CqelsError, match="is not the state of a run"):
        forget_state(tmp_path / "letter.txt")
    for engine in ("spark", "embedded"):
        with pytest.raises(CqelsError, match=r"is not the state of a run, or not only: it has letter\.txt"):
            check_state(tmp_path, engine)
        with pytest.raises(CqelsError, match="is not the state of a run"):
            check_state(tmp_path / "letter.txt", engine)
    assert (tmp_path / "letter.txt").exists()


def test_what_lies_beside_a_state_stays(tmp_path: Path) -> None:
    """A project whose folder was named as that of the state."""
    for name in ("state.json", "lock", "hot.rq"):
        (tmp_path / name).touch()
    check_state(tmp_path, "embedded")
    with pytest.raises(CqelsError, match=r"or not only: it has hot\.rq; it is left as it is"):
        forget_state(tmp_path)
    assert len([*tmp_path.iterdir()]) == 3


def test_a_state_that_a_run_has_stays(tmp_path: Path) -> None:
    (tmp_path / "cqels.json").touch()
    lock = FolderLock(tmp_path, "the checkpoint", hint="")
    lock.acquire()
    with pytest.raises(CqelsError, match="is in use by"):
        forget_state(tmp_path)
    lock.release()
    assert is_begun(tmp_path)


def test_each_engine_has_its_own(tmp_path: Path) -> None:
    check_state(tmp_path / "new", "spark")
    (tmp_path / "cqels.json").touch()
    check_state(tmp_path, "spark")
    with pytest.raises(
        CqelsError, match="has the state of a run on Spark, and this one is of the embedded engine"
    ) as error:
        check_state(tmp_path, "embedded")
    assert "begin anew with --fresh" in (error.value.hint or "")
