"""What a started stack says: where it is, and two lines to try it with."""

import json

from . import ports
from .stack import Stack


def banner(stack: Stack, key: str, elapsed_s: float) -> str:
    """The same request twice: the second answer comes from the cache, because the demo tenant opts in."""
    base = f"http://{ports.HOST}:{next(iter(stack.ingress_ports.values()))}"
    request = {
        "model": stack.model_name,
        "stream": True,
        "max_tokens": 128,
        "temperature": 0,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "What is the capital of France?"},
        ],
    }
    curl = (
        f"curl -sN {base}/v1/chat/completions -H 'Authorization: Bearer {key}' "
        f"-H 'Content-Type: application/json' -d '{json.dumps(request)}'"
    )
    lines = [
        f"sub100 is ready after {elapsed_s:.0f} s: {stack.model_name} on engine {stack.engine}",
        "",
        f"  API      {base}/v1",
        f"  demo key {key}",
        f"  traces   http://{ports.HOST}:{stack.traces_port}/",
        "",
        "Ask:",
        f"  {curl}",
        "Ask the same again; this answer comes from the cache:",
        f"  {curl}",
    ]
    others = list(stack.ingress_ports.values())[1:]
    if others:
        more = ", ".join(f"http://{ports.HOST}:{port}" for port in others)
        lines.insert(4, f"  more     {more}")
    return "\n".join(lines)
