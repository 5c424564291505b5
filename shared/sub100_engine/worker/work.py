"""A job off the bus as the engine takes it."""

from sub100_proto import tokens
from sub100_proto.jobs import DecodeJob, Job

from ..api import Work


def work_of(job: Job) -> Work:
    """Raises ValueError for token ids that are not whole or events that cannot be sent anywhere."""
    if job.events.split() != [job.events]:
        raise ValueError("the events subject is empty or holds white space")
    return Work(
        attempt=job.attempt,
        prompt=tokens.unpack(job.prompt),
        sampling=job.sampling,
        output=tokens.unpack(job.output) if isinstance(job, DecodeJob) else [],
        kv=job.kv if isinstance(job, DecodeJob) else None,
        salt=job.salt,
    )
