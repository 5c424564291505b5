"""Render, tokenise and hash, once for the whole fleet; long prompts off the event loop."""

import asyncio

from sub100_proto import blocks, tokens
from sub100_shared.secret import cache_salt

from .exchange import Exchange, Prompt
from .openai_request import GenerationRequest
from .template import ChatTemplate
from .tokenizer import ModelTokenizer


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
        self._tokenizer.check_ids(list(request.sampling.stop_token_ids), param="stop_token_ids")
        packed = tokens.pack(ids)
        salt = self._salt(tenant)
        return Prompt(
            packed=packed,
            num_tokens=len(ids),
            block_hashes=blocks.chain(packed, self._block_size, salt),
            salt=salt,
            max_tokens=request.resolve_max_tokens(len(ids), self._tokenizer.max_model_len),
        )

    def _token_ids(self, request: GenerationRequest) -> list[int]:
        if request.messages is not None:
            return self._tokenizer.encode_chat(self._template.render(request.messages))
        prompt = request.prompt
        if isinstance(prompt, str):
            return self._tokenizer.encode_completion(prompt)
        return self._tokenizer.check_ids(list(prompt))

    def _salt(self, tenant: str) -> str:
        salt = self._salts.get(tenant)
        if salt is None:
            salt = self._salts[tenant] = cache_salt(self._secret, tenant)
        return salt
