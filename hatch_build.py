"""Compiles kernels and the parser's tables into the package while it is built, for an editable install too."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = Path("src/cqels/kernels/compiled")
TABLES = Path("src/cqels/lang/tables")


class Precompile(BuildHookInterface[Any]):
    """Without a compiler the package is built all the same: what is missing is then made when it is first needed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, str(Path(self.root, "src")))
        try:
            from cqels.kernels.compiler.precompile import precompile

            made = precompile(Path(self.root, KERNELS))
            from cqels.lang.parser import ship_tables

            ship_tables(Path(self.root, TABLES))
        except ImportError as error:
            self.app.display_warning(f"kernels are not compiled: {error}")
            return
        finally:
            sys.path.pop(0)
        if made and version != "editable":
            build_data["artifacts"] += [f"/{KERNELS.as_posix()}/**/*.o", f"/{TABLES.as_posix()}/*.json"]
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"
