"""The version of this release. Imports nothing, so that every part can say it."""

from typing import Final

VERSION: Final = "0.3.0"
