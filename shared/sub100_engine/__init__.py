"""Engines behind one Protocol (``api``): ``vllm`` (the only importer of vllm) and ``sim``.

``worker`` is the shell that prefill and decode services share: claim, queue bound, coalesced events,
heartbeats, KV events, control, drain.
"""
