"""What is kept in Redis; the only importer of redis.

``entries`` (keys and bytes) under a ``seal``, ``commands`` (the connection: bounded, behind the breaker) over
the ``lines`` of look-ups, ``generations`` (what may be read), ``exact`` (by digest, and by wording),
``vectors`` (by nearness, within a partition) over the ``parts`` of the index, ``writes``, ``scripts`` (what
must happen at once), ``ledger`` (each tenant's quota), ``counts`` (what each tenant asked and found),
``sweep`` (erasing, with proof), ``log_place`` (how far the log of invalidations was read).
"""
