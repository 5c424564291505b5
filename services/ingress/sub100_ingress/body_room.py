"""Room for request bodies: how many bytes of them may be held at once, by all tenants and by each.

A body takes room as it comes, not as it is announced, and gives it back when its request has ended: what is
parsed from it lives as long. So many connections cost the server no more memory than it has, and one tenant
leaves room for the others.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from sub100_shared.errors import Refused

TENANT_SHARE: Final = 4
"""One tenant may hold a fourth of the room; one body always fits."""


class BodyRoom:
    """``max_body_bytes`` bounds one body (see ``http_body``), ``limit`` all of them together."""

    def __init__(self, limit: int, max_body_bytes: int) -> None:
        self._tenant_limit = max(limit // TENANT_SHARE, max_body_bytes)
        self._limit = max(limit, self._tenant_limit)
        self._by_tenant: dict[str, int] = {}
        self.num_bytes = 0

    @contextlib.contextmanager
    def hold(self, tenant: str) -> Iterator[Callable[[int], None]]:
        """Yields what is to be called with the size of each part that came; it raises Refused when there is
        no room for it. All of it is given back at the end of the block."""
        held = 0

        def take(num_bytes: int) -> None:
            nonlocal held
            own = self._by_tenant.get(tenant, 0)
            if own + num_bytes > self._tenant_limit:
                raise Refused(
                    "tenant_concurrency_exceeded",
                    f"your requests hold {own} bytes already; your limit is {self._tenant_limit} at a time",
                )
            if self.num_bytes + num_bytes > self._limit:
                raise Refused("queue_full", "the requests in flight are too large together")
            held += num_bytes
            self._by_tenant[tenant] = own + num_bytes
            self.num_bytes += num_bytes

        try:
            yield take
        finally:
            self.num_bytes -= held
            left = self._by_tenant.get(tenant, 0) - held
            if left:
                self._by_tenant[tenant] = left
            else:
                self._by_tenant.pop(tenant, None)
