"""The behaviour suite for every engine, on vLLM."""

import pytest

pytest.register_assert_rewrite(
    "tests.contract.engine_suite", "tests.contract.answer_shapes", "tests.contract.transfer_suite"
)

from tests.contract.answer_shapes import AnswerShapes  # noqa: E402
from tests.contract.engine_suite import EngineBehaviour  # noqa: E402
from tests.contract.transfer_suite import TransferBehaviour  # noqa: E402

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


class TestVllmEngine(EngineBehaviour):
    pass


class TestVllmTransfers(TransferBehaviour):
    pass


class TestVllmAnswers(AnswerShapes):
    pass
