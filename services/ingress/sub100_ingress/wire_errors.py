"""msgspec's findings as OpenAI's: which field, and what is wrong with it."""

import re
from typing import Final

import msgspec

from sub100_shared.errors import ClientError

_AT: Final = re.compile(r"(?:`key` in )?`\$([\w.\[\]]*)`")
"""A path is made of names of ours, of indices and of ``[...]``: nothing of what the client wrote."""
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_MAX_MESSAGE: Final = 300


def client_error(error: msgspec.ValidationError) -> ClientError:
    """A ClientError whose ``param`` is a path such as ``messages[0].content[1].type``."""
    text = str(error)
    found, _, where = text.rpartition(" - at ")
    at = _AT.fullmatch(where)
    param = at[1].lstrip(".").removesuffix("[...]") if at else ""
    text = found if at else text
    missing = _MISSING.match(text)
    if missing is not None:
        param = f"{param}.{missing[1]}" if param else missing[1]
        return ClientError("missing_required_parameter", f"missing: {param}", param=param)
    code = "invalid_type" if ", got `" in text else "invalid_value"
    message = f"{param}: {text[:_MAX_MESSAGE]}" if param else text[:_MAX_MESSAGE]
    return ClientError(code, message, param=param or None)
