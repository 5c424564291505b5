"""What a tenant may keep, and where: one file of the deployment, over its defaults."""

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from sub100_proto import subjects
from sub100_shared.config import ConfigError

from .store.ledger import Quota

VARIABLE: Final = "SUB100_CACHE_TENANTS_FILE"

_Limit = Annotated[int, Meta(ge=1)] | None


class TenantRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``regions``: those that share the tenant's answers. One that is not named keeps its own to itself and
    takes none."""

    max_entries: _Limit = None
    max_bytes: _Limit = None
    regions: frozenset[str] = frozenset()


class Tenants:
    """Who is not in the file has the defaults, and no other region."""

    def __init__(self, rules: dict[str, TenantRules], default: Quota) -> None:
        self._rules = rules
        self._default = default

    def quota(self, tenant: str) -> Quota:
        rules = self._rules.get(tenant, _NO_RULES)
        return Quota(
            rules.max_entries or self._default.max_entries, rules.max_bytes or self._default.max_bytes
        )

    def regions(self, tenant: str) -> frozenset[str]:
        """Those that share its answers."""
        return self._rules.get(tenant, _NO_RULES).regions

    @property
    def is_anything_shared(self) -> bool:
        return any(rules.regions for rules in self._rules.values())


def load_tenants(path: str, default: Quota) -> Tenants:
    """Read a JSON object of tenants, each with the fields of TenantRules; no path: no rules.

    Raises ConfigError."""
    if not path:
        return Tenants({}, default)
    try:
        rules = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, TenantRules])
        for each in rules.values():
            for region in each.regions:
                subjects.key(region)
    except OSError as error:
        raise ConfigError(f"{VARIABLE}: cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"{VARIABLE}: {path}: {error}") from error
    return Tenants(rules, default)


_NO_RULES: Final = TenantRules()
