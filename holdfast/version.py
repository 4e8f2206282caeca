"""The version of this release. Imports nothing, so that every part can say it."""

VERSION = "0.3.0"
