"""Before any test module is imported: suites shared by several modules keep pytest's readable assertions."""

import pytest

pytest.register_assert_rewrite("tests.contract.engine_suite", "tests.contract.answer_shapes")
