"""The wire contract of sub100: every message, subject and header, and nothing else.

Two rules everything else relies on:

* **ingress publishes every job** - NATS tells only the publisher that nobody listens, so only the
  process that must react to a dead worker may publish to it;
* **ingress alone detokenises** - token ids travel, text never does, so characters and stop strings
  may span prefill, decode and re-placements.

Modules: ``subjects`` (names), ``headers``, ``codec`` (bytes), ``tokens`` and ``blocks`` (packed
arrays), and one module of messages per conversation: ``cache``, ``placement``, ``jobs``, ``stream``,
``fleet``, ``kv``. Imports msgspec and the standard library only.

Evolution: fields are only ever added, each with a default; a field is never retyped or reused.
Readers ignore fields they do not know (tests/contract).
"""
