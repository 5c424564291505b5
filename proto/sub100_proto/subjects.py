"""Subject names: ``sub100.v1.<region>.<owner>.<verb>[.<key>]``, built here and nowhere else.

| subject | from | to | payload -> reply |
| --- | --- | --- | --- |
| ``cache.lookup`` | ingress | cache (queue group) | CacheLookup -> CacheHit or CacheMiss |
| ``cache.fill`` | ingress | cache (queue group) | CacheFill, CacheAlias, CacheObserved |
| ``cache.stats`` | ingress, operator | cache (queue group) | CacheStatsQuery -> CacheStats |
| ``cache.admin`` | operator | cache (queue group) | CacheInvalidate -> CacheInvalidated |
| ``cache.replica`` | cache of another region | cache (queue group) | CacheReplica, CacheAliasReplica |
| ``cache.lookup.<cache>``, ``.fill.``, ``.stats.`` | as above | that cache | as above |
| ``cache.log`` | cache | JetStream, and every cache | CacheInvalidate |
| ``scheduler.place`` | ingress | scheduler (queue group) | PlaceRequest -> Placement or Rejected |
| ``scheduler.place.<scheduler>`` | ingress | that scheduler | as above |
| ``scheduler.settled`` | ingress | every scheduler | Settled |
| ``scheduler.placed`` | scheduler | every other scheduler | Placed |
| ``<role>.job.<worker>`` | ingress | that worker | PrefillJob or DecodeJob -> Accepted or Busy |
| ``<role>.control.<worker>`` | ingress, scheduler | worker | Abort, Resend, ReleaseKv, Ping, DumpKv |
| ``ingress.stream.<ingress>.events`` | workers | that ingress | StreamBatch |
| ``ingress.stream.<ingress>.claim.<attempt>`` | worker, or NATS (503) | that ingress | Accepted or Busy |
| ``ingress.stream.<ingress>.pong.<worker>`` | worker, or NATS (503) | that ingress | Pong |
| ``fleet.heartbeat.<role>.<worker>`` | workers | schedulers | Heartbeat |
| ``fleet.kv.<worker>`` | workers | schedulers | KvEvents |
| ``fleet.status.<service>.<instance>`` | every service | operators, workers, ingress | ServiceStatus |
"""

import re
from typing import Final, Literal

PREFIX: Final = "sub100.v1"
Role = Literal["prefill", "decode"]

_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


class InvalidKey(ValueError):
    """A subject key holds a character that would change the subject's structure."""

    def __init__(self, key: str) -> None:
        super().__init__(f"not a subject key: {key!r} (allowed: A-Z a-z 0-9 _ -, at most 64)")
        self.key = key


def key(value: str) -> str:
    """Return ``value`` if it may stand as one token of a subject; raise InvalidKey otherwise."""
    if _KEY.fullmatch(value) is None:
        raise InvalidKey(value)
    return value


def slug(value: str) -> str:
    """Make a subject key of any name, e.g. of a model id: other characters become ``_``."""
    return key(re.sub(r"[^A-Za-z0-9_-]", "_", value)[:64] or "_")


def _at(region: str, tail: str) -> str:
    return f"{PREFIX}.{key(region)}.{tail}"


def of_replica(shared: str, instance: str) -> str:
    """Where the one of that name hears what is otherwise sent to any of its queue group, on ``shared``; that
    itself without a name."""
    return f"{shared}.{key(instance)}" if instance else shared


def cache_lookup(region: str) -> str:
    return _at(region, "cache.lookup")


def cache_fill(region: str) -> str:
    return _at(region, "cache.fill")


def cache_stats(region: str) -> str:
    """Apart from ``cache_admin``: who counts keeps nobody from invalidating."""
    return _at(region, "cache.stats")


def cache_admin(region: str) -> str:
    return _at(region, "cache.admin")


def cache_replica(region: str) -> str:
    """``region`` is the receiver's."""
    return _at(region, "cache.replica")


def cache_log(region: str) -> str:
    """The log of invalidations, as ``region`` writes it."""
    return _at(region, "cache.log")


def cache_log_all() -> str:
    return f"{PREFIX}.*.cache.log"


def scheduler_place(region: str) -> str:
    return _at(region, "scheduler.place")


def scheduler_settled(region: str) -> str:
    return _at(region, "scheduler.settled")


def scheduler_placed(region: str) -> str:
    return _at(region, "scheduler.placed")


def job(region: str, role: Role, worker_id: str) -> str:
    return _at(region, f"{role}.job.{key(worker_id)}")


def control(region: str, role: Role, worker_id: str) -> str:
    return _at(region, f"{role}.control.{key(worker_id)}")


def stream_events(region: str, ingress_id: str) -> str:
    return _at(region, f"ingress.stream.{key(ingress_id)}.events")


def stream_claim(region: str, ingress_id: str, attempt: str) -> str:
    return _at(region, f"ingress.stream.{key(ingress_id)}.claim.{attempt}")


def stream_pong(region: str, ingress_id: str, worker_id: str) -> str:
    return _at(region, f"ingress.stream.{key(ingress_id)}.pong.{key(worker_id)}")


def ponging(subject: str) -> str:
    """The worker of a ``stream_pong`` subject; empty for any other."""
    owner, _, worker_id = subject.rpartition(".")
    return worker_id if owner.endswith(".pong") else ""


def stream_all(region: str, ingress_id: str) -> str:
    """The one subscription of an ingress process: events and claims of all its requests, and pongs."""
    return _at(region, f"ingress.stream.{key(ingress_id)}.>")


def heartbeat(region: str, role: Role, worker_id: str) -> str:
    return _at(region, f"fleet.heartbeat.{role}.{key(worker_id)}")


def heartbeat_all(region: str) -> str:
    return _at(region, "fleet.heartbeat.>")


def kv_events(region: str, worker_id: str) -> str:
    return _at(region, f"fleet.kv.{key(worker_id)}")


def kv_events_all(region: str) -> str:
    return _at(region, "fleet.kv.>")


def status(region: str, service: str, instance: str) -> str:
    return _at(region, f"fleet.status.{key(service)}.{key(instance)}")


def status_of(region: str, service: str) -> str:
    """All instances of one service."""
    return _at(region, f"fleet.status.{key(service)}.*")


def status_all(region: str) -> str:
    return _at(region, "fleet.status.>")
