"""The cache: finished answers by the digest of everything that made them. It never costs a request.

``store`` is the key-value store (the only importer of redis), ``breaker`` keeps a dead one from being
asked, ``exact`` is the exact tier on top of both, ``service`` turns messages into calls and back. A
semantic tier is another ``Tier`` behind the same look-up.
"""
