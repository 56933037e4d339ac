"""Compiles all kernels for the usual processors, when the package is built or installed.

    python -m cqels.kernels.compiler.precompile [FOLDER]

`hatch_build.py` calls it; the object files are named by the texts that they were made of, so that those of changed
texts are not taken.
"""

from __future__ import annotations

import platform
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from cqels import kernels
from cqels.kernels.compiler.kernel import COMPILED, LEVELS, UNITS, compile_unit, object_name, sealed, target_machine


def precompile(folder: Path | None = None) -> list[Path]:
    """Write the object files of all units for each level of this architecture; those of older texts go."""
    folder = folder or Path(kernels.__path__[0]) / COMPILED
    for each in walk_packages(kernels.__path__, "cqels.kernels."):
        import_module(each.name)
    made = []
    for level, _ in LEVELS.get(platform.machine().replace("AMD64", "x86_64"), ()):
        place, machine = folder / level, target_machine(level)
        place.mkdir(parents=True, exist_ok=True)
        wanted = {place / object_name(module): module for module in UNITS if module.startswith("cqels.kernels.")}
        for path in {*place.glob("*.o")} - {*wanted}:
            path.unlink()
        for path, module in wanted.items():
            if not path.exists():
                path.write_bytes(sealed(*compile_unit(module, machine)))
        made += [*wanted]
    return made


if __name__ == "__main__":
    given = [Path(each) for each in sys.argv[1:]]
    sys.stdout.write(f"{len(precompile(*given))} object files\n")
