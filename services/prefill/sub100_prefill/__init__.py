"""Prefill: computes what is not cached, in chunks, emits the first token itself and hands the KV over."""
