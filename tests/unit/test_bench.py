"""The benchmarks can be started: what they import of the engine is there. What they measure is not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "bench"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not here")
def test_every_benchmark_can_be_imported() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    assert names
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    done = subprocess.run(
        [sys.executable, "-c", code, *names], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
