"""Bytes <-> messages: msgpack, prepared once per process, one decoder per conversation.

``encode`` accepts any message of this package. Each ``decode_*`` raises ``msgspec.ValidationError``
or ``msgspec.DecodeError`` (both ``msgspec.MsgspecError``) on anything but its own messages.
"""

from typing import Final

import msgspec

from .cache import (
    CacheAlias,
    CacheAliasReplica,
    CachedAnswer,
    CacheFill,
    CacheHit,
    CacheInvalidate,
    CacheInvalidated,
    CacheLookup,
    CacheMiss,
    CacheObserved,
    CacheReplica,
    CacheStats,
    CacheStatsQuery,
)
from .fleet import Heartbeat, KvDump, KvEvents, ServiceStatus
from .jobs import Abort, Accepted, Busy, DecodeJob, DumpKv, Judged, Ping, Pong, PrefillJob, ReleaseKv, Resend
from .placement import Placed, Placement, PlaceRequest, Rejected, Settled
from .stream import StreamBatch

_encoder: Final = msgspec.msgpack.Encoder()

encode = _encoder.encode

decode_cache_lookup = msgspec.msgpack.Decoder(CacheLookup).decode
decode_cache_reply = msgspec.msgpack.Decoder(CacheHit | CacheMiss).decode
decode_cache_write = msgspec.msgpack.Decoder(CacheFill | CacheAlias | CacheObserved).decode
decode_cache_replica = msgspec.msgpack.Decoder(CacheReplica | CacheAliasReplica).decode
decode_cache_admin = msgspec.msgpack.Decoder(CacheInvalidate | CacheStatsQuery).decode
decode_cache_admin_reply = msgspec.msgpack.Decoder(CacheInvalidated | CacheStats).decode
decode_cached_answer = msgspec.msgpack.Decoder(CachedAnswer).decode
decode_place_request = msgspec.msgpack.Decoder(PlaceRequest).decode
decode_place_reply = msgspec.msgpack.Decoder(Placement | Rejected).decode
decode_placed = msgspec.msgpack.Decoder(Placed).decode
decode_settled = msgspec.msgpack.Decoder(Settled).decode
decode_job = msgspec.msgpack.Decoder(PrefillJob | DecodeJob).decode
decode_claim = msgspec.msgpack.Decoder(Accepted | Busy).decode
decode_control = msgspec.msgpack.Decoder(Abort | Resend | ReleaseKv | DumpKv | Judged | Ping).decode
decode_pong = msgspec.msgpack.Decoder(Pong).decode
decode_stream_batch = msgspec.msgpack.Decoder(StreamBatch).decode
decode_heartbeat = msgspec.msgpack.Decoder(Heartbeat).decode
decode_kv_events = msgspec.msgpack.Decoder(KvEvents).decode
decode_kv_dump = msgspec.msgpack.Decoder(KvDump).decode
decode_status = msgspec.msgpack.Decoder(ServiceStatus).decode
