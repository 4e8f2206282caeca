"""Time zones by name, from the `tzdata` package.

The package and not the operating system's files: every node of a cluster has the same rules, whatever image it runs on, and
they change with `pip install -U tzdata`. Names are compared with the IANA list and not with the file system, which on some
machines ignores case and would accept `asia/shanghai` there and nowhere else.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from holdfast.nearest import did_you_mean
from holdfast.spec.problems import quoted


@cache
def zone_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())


@cache
def zone_info(name: str) -> ZoneInfo:
    """A zone of the list; an unknown name is a bug in Holdfast."""
    assert name in zone_names(), name
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def unknown_zone(name: str) -> tuple[str, str] | None:
    """Why a name is not a time zone, and what to write instead; None if it is one."""
    if name in zone_names():
        return None
    exact = {zone.casefold(): zone for zone in zone_names()}.get(name.casefold())
    hint = f"did you mean {exact}?" if exact else _near(name)
    return f"unknown timezone {quoted(name)}", hint


def _near(name: str) -> str:
    """The nearest name within its region, or among the last parts: `Berlin` is Europe/Berlin."""
    by_city = {zone.rpartition("/")[2].casefold(): zone for zone in sorted(zone_names())}
    if (zone := by_city.get(name.rpartition("/")[2].strip().casefold().replace(" ", "_"))) is not None:
        return f"did you mean {zone}?"
    region = name.partition("/")[0].casefold() + "/"
    same_region = [zone for zone in zone_names() if zone.casefold().startswith(region)]
    return did_you_mean(name, same_region) or "write an IANA name such as Europe/Berlin, or UTC"
