"""The cache: finished answers, found again by what made them or by a question that asks the same.

``store`` (Redis), ``embedders`` (vectors), ``guard`` (whether two questions ask the same), ``semantic`` and
``lookups`` (the tiers), ``breaker`` (whether what may be dead may be asked), ``service`` (messages in,
messages out), ``composition`` (how they fit).
"""
