"""A batch of jobs is what any producer would have made of the same records."""

import random

from qbus.broker.disque.adding import JobEncoder, NewJob
from qbus.jobs import JobOptions
from qbus.records import encode_records

NOW_MS = 1_800_000_000_000


def as_others_do(jobs: list[NewJob]) -> bytearray:
    """The same records, made by what makes those of producers."""
    return encode_records(
        [job.body for job in jobs],
        headers=[list(job.options.headers()) for job in jobs],
        base_timestamp=NOW_MS,
    )


async def test_a_job_of_any_size_and_any_options() -> None:
    encoder = JobEncoder()
    for size in (0, 1, 63, 64, 100, 1023, 1024, 8191, 8192, 100_000, 1 << 20):
        for options in (JobOptions(None, 5), JobOptions(60, 0), JobOptions(86400, 300, 0, 3, "a")):
            jobs = [NewJob(b"x" * size, options)]
            assert encoder.encode(jobs, NOW_MS) == as_others_do(jobs)


async def test_many_jobs_share_a_batch() -> None:
    rng, encoder = random.Random(7), JobEncoder()
    known = [JobOptions(rng.randrange(1, 90_000), rng.randrange(300)) for _ in range(20)]
    for count in (1, 2, 64, 1025, 3000):
        jobs = [NewJob(rng.randbytes(rng.randrange(300)), rng.choice(known)) for _ in range(count)]
        assert encoder.encode(jobs, NOW_MS) == as_others_do(jobs)
