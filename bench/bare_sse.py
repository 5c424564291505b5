"""The yardstick: a bare SSE server that answers with 16 tokens in 16 chunks and does nothing else.

Same HTTP stack as ingress (uvicorn, httptools, uvloop), same bytes on the wire.
``python -m bench.bare_sse PORT``.
"""

import asyncio
import sys
from typing import Any

import uvicorn

NUM_CHUNKS = 16
_CHUNK = (
    b'data: {"id":"chatcmpl-x","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    b'[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}\n\n'
)
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    for _ in range(NUM_CHUNKS):
        await send({"type": "http.response.body", "body": _CHUNK, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="error",
        access_log=False,
    )
