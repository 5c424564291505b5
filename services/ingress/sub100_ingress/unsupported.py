"""Request fields that this server knows and does not serve yet.

Such a field is refused by name when it asks for something and passes when it is neutral (SDKs send
defaults). Fields that are in none of these tables nor in the request's Struct are ignored.
"""

from collections.abc import Mapping
from typing import Any, Final

from sub100_shared.errors import ClientError

_NONE: Final[tuple[Any, ...]] = ()
"""Only null is neutral."""

_COMMON: Final[Mapping[str, tuple[Any, ...]]] = {
    # Answers of another shape.
    "best_of": (1,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    # Sampling that engines know and the contract does not.
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": _NONE,
    "prompt_embeds": _NONE,
}
_CHAT: Final[Mapping[str, tuple[Any, ...]]] = {
    **_COMMON,
    "echo": (False,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": ([], ["text"]),
    "audio": _NONE,
    "prediction": _NONE,
    "reasoning": _NONE,
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": _NONE,
    "chat_template": _NONE,
    "chat_template_kwargs": ({},),
    "documents": ([],),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
}
_COMPLETION: Final[Mapping[str, tuple[Any, ...]]] = {**_COMMON, "suffix": ("",)}


def refuse_chat(body: Mapping[str, Any]) -> None:
    """Raise ClientError ``unsupported_parameter`` for the first field that asks for what is not there."""
    _refuse(body, _CHAT)


def refuse_completion(body: Mapping[str, Any]) -> None:
    """As ``refuse_chat``, for ``/v1/completions``."""
    _refuse(body, _COMPLETION)


def _refuse(body: Mapping[str, Any], neutral: Mapping[str, tuple[Any, ...]]) -> None:
    for name in neutral.keys() & body.keys():
        value = body[name]
        if value is not None and not any(_same(value, allowed) for allowed in neutral[name]):
            raise ClientError("unsupported_parameter", f"{name} is not supported yet", param=name)


def _same(value: Any, allowed: Any) -> bool:
    """Equality in which True is not 1."""
    return bool(value == allowed) and isinstance(value, bool) == isinstance(allowed, bool)
