"""The scheduler: which workers a request runs on. Carries no job and no token.

``fleet`` (who is there), ``inflight`` (what was placed and not yet settled), ``prefix_index`` and
``kv_feed`` (who holds which blocks), ``predictor`` (how long a prefill will take) make the view;
``policy`` decides on it without I/O; ``service`` turns messages into calls and back.
"""
