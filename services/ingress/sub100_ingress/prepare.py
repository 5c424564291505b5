"""Render, tokenise and hash, once for the whole fleet; long prompts off the event loop."""

import asyncio
from typing import Final

from sub100_proto import blocks, tokens
from sub100_proto.logprobs import row_bytes
from sub100_proto.sampling import Sampling
from sub100_shared.errors import ClientError
from sub100_shared.secret import cache_salt

from .exchange import Exchange, Prompt
from .openai_request import GenerationRequest
from .template import ChatTemplate
from .tokenizer import ModelTokenizer

MAX_PROMPT_LOGPROBS_BYTES: Final = 2**20
"""Of a prompt's log probabilities on the bus: 6,241 tokens with 20 alternatives, 131,072 with none."""


class Preparer:
    """Text of a request -> Prompt. Raises ClientError: template refuses, too long for the model."""

    def __init__(
        self,
        tokenizer: ModelTokenizer,
        template: ChatTemplate,
        *,
        block_size: int,
        secret: bytes,
        long_prompt_bytes: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._block_size = block_size
        self._secret = secret
        self._long_prompt_bytes = long_prompt_bytes
        self._salts: dict[str, str] = {}

    async def prepare(self, ex: Exchange, body_bytes: int) -> Prompt:
        """``body_bytes`` is the size of the request's body: what is long is decided before any work."""
        if body_bytes > self._long_prompt_bytes:
            prompt = await asyncio.to_thread(self._prepare, ex.request, ex.tenant.name)
        else:
            prompt = self._prepare(ex.request, ex.tenant.name)
        ex.num_prompt_tokens = prompt.num_tokens
        return prompt

    def _prepare(self, request: GenerationRequest, tenant: str) -> Prompt:
        ids = self._token_ids(request)
        packed = tokens.pack(ids)
        salt = self._salt(tenant)
        return Prompt(
            packed=packed,
            num_tokens=len(ids),
            block_hashes=blocks.chain(packed, self._block_size, salt),
            salt=salt,
            sampling=self._sampling(request, len(ids)),
        )

    def _sampling(self, request: GenerationRequest, num_tokens: int) -> Sampling:
        """Complete, and within what the model knows and the bus carries; raises ClientError."""
        tokenizer, sampling = self._tokenizer, request.sampling
        tokenizer.check_ids(list(sampling.stop_token_ids), param="stop_token_ids")
        tokenizer.check_ids(list(sampling.allowed_token_ids), param="allowed_token_ids")
        tokenizer.check_ids(list(sampling.logit_bias), param="logit_bias")
        num_top = sampling.prompt_logprobs
        if num_top is not None and num_tokens * row_bytes(num_top) > MAX_PROMPT_LOGPROBS_BYTES:
            param = "prompt_logprobs" if request.prompt_top is not None else "echo"
            most = MAX_PROMPT_LOGPROBS_BYTES // row_bytes(num_top)
            raise ClientError(
                "invalid_value", f"{param}: with {num_top} alternatives at most {most} tokens", param=param
            )
        return request.engine_sampling(
            request.resolve_max_tokens(num_tokens, tokenizer.max_model_len),
            tokenizer.encode_words(request.bad_words, param="bad_words"),
        )

    def _token_ids(self, request: GenerationRequest) -> list[int]:
        if request.messages is not None:
            functions = () if request.tools is None else request.tools.functions
            return self._tokenizer.encode_chat(self._template.render(request.messages, functions))
        prompt = request.prompt
        if isinstance(prompt, str):
            return self._tokenizer.encode_completion(prompt)
        return self._tokenizer.check_ids(list(prompt))

    def _salt(self, tenant: str) -> str:
        salt = self._salts.get(tenant)
        if salt is None:
            salt = self._salts[tenant] = cache_salt(self._secret, tenant)
        return salt
