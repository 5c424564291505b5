"""What is kept in Redis; the only importer of redis.

``entries`` (keys and bytes), ``commands`` (the connection: bounded, behind the breaker), ``generations``
(what may be read), ``exact`` (by digest), ``vectors`` (by nearness, within a partition), ``writes``,
``scripts`` (what must happen at once).
"""
