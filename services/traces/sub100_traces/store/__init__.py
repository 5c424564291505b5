"""The spans on disk, what was worked out of them at intake, and the questions that a page asks."""

from .filters import Filter, InvalidFilter
from .fleet import Fleet, FleetFilter, HopStats
from .reader import Page, QueryTooSlow
from .store import House, Limits, Store, StoreError

__all__ = [
    "Filter",
    "Fleet",
    "FleetFilter",
    "HopStats",
    "House",
    "InvalidFilter",
    "Limits",
    "Page",
    "QueryTooSlow",
    "Store",
    "StoreError",
]
