"""What a model can do with tools, as its chat template tells: whether it is shown functions, and in which
form it writes calls.

A call that is forced needs neither: the grammar knows the function. A model that is to decide for itself must
have been told what there is, and its calls must be told from its text.
"""

import re
from typing import Final, Literal

import msgspec

from sub100_shared.errors import ClientError

from .openai_request import GenerationRequest
from .tool_text import CLOSE

Form = Literal["", "hermes"]

_SHOWN: Final = re.compile(r"\btools\b")
_OTHERS: Final = ("<function=", "<arg_key>", "<parameter=")
"""In templates of models that write something else than JSON between the same marks."""


class ToolSupport(msgspec.Struct, frozen=True, kw_only=True):
    """``form`` is empty where it is not known."""

    is_shown: bool
    form: Form

    def admitted(self, request: GenerationRequest) -> GenerationRequest:
        """The request, with the form in which its calls will be read; raises ClientError. Where only one
        call is wanted, its closing mark ends the answer."""
        use = request.tools
        if use is None or use.choice != "auto":
            return request
        if not self.is_shown:
            raise _cannot("this model's chat template shows it no tools")
        if not self.form:
            raise _cannot("the form in which this model writes calls is not known here")
        stops = request.stops if use.is_parallel else (*request.stops, CLOSE)
        return msgspec.structs.replace(
            request, tools=msgspec.structs.replace(use, form=self.form), stops=stops
        )


def support_of(template: str, form: Literal["auto", "none", "hermes"]) -> ToolSupport:
    """By the source of the chat template, unless the operator says which ``form`` it is."""
    if form == "auto":
        is_hermes = "<tool_call>" in template and "arguments" in template
        return ToolSupport(
            is_shown=bool(_SHOWN.search(template)),
            form="hermes" if is_hermes and not any(other in template for other in _OTHERS) else "",
        )
    return ToolSupport(is_shown=bool(_SHOWN.search(template)), form="" if form == "none" else form)


def _cannot(reason: str) -> ClientError:
    return ClientError(
        "unsupported_value",
        f"tools: {reason}, so tool_choice auto cannot work; required or a named function can",
        param="tools",
    )
