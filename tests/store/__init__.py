"""Tests of the stores. The common suite is no test module by name, so pytest is asked to explain its assertions too."""

import pytest

pytest.register_assert_rewrite("tests.store.conformance")
