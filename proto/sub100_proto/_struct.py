"""The base of all messages on the bus: frozen, keyword-only, defaults are not sent."""

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A map on the wire: readers ignore unknown fields, writers may add fields with defaults."""


class HotMessage(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """An array on the wire, for messages sent once per engine step. New fields go to the end."""
