"""What holds for all tests: a random search finds today what it found yesterday, and looks elsewhere by command.

`pytest --hypothesis-profile=search` takes new seeds and more examples each time. Knows nothing of the product.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

SLOW = [HealthCheck.too_slow]  # how fast examples are made says how busy the machine is

settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, print_blob=True, suppress_health_check=SLOW
)
settings.register_profile("search", max_examples=2_000, deadline=None, suppress_health_check=SLOW)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("hypothesis_profile", None):
        # It draws constants of whatever modules are loaded, and those are others in each process of a run.
        providers._get_local_constants = lambda: providers._local_constants
