"""The cache: finished answers, found again by the exact digest of everything that made them.

``store`` (Redis, the only importer of it), ``entries`` (keys and bytes), ``breaker`` (whether Redis may
be asked), ``service`` (messages in, messages out).
"""
