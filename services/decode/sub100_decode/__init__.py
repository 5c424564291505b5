"""Decode: pulls the KV of a prompt and streams the rest of the answer."""
