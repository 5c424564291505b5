"""The shell around an engine that prefill and decode share.

``claims`` decides whether a job is taken, ``streams`` turns engine outputs into coalesced, re-sendable
events, ``kv_feed`` numbers KV changes, ``shell`` composes them with the bus: jobs and control in;
claims, events, heartbeats and KV events out.
"""
