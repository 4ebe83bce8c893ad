"""Range and roundrobin decide as Kafka's own assignors do, which are asked about many groups."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from perf.peers import java
from qbus.clients.group.assignors import Candidate, Topics, assignors_of
from qbus.consumer_protocol import Subscription
from tests.support.tools import skip_because_of

from . import peers

pytestmark = pytest.mark.integration

CASES = 400
RACKS = ("r0", "r1", "r2")
Case = tuple[str, list[Candidate], Topics]


def drawn(chance: random.Random) -> Case:
    has_racks = chance.random() < 0.6
    names = [f"t{number}" for number in range(chance.randint(1, 4))]
    topics = {
        name: [
            frozenset(chance.sample(RACKS, chance.randint(1, 3)) if has_racks else ())
            for _ in range(chance.randint(1, 9))
        ]
        for name in names
        if chance.random() < 0.9
    }
    members = [
        Candidate(
            f"m{number}{chance.randint(0, 99)}",
            f"i{chance.randint(0, 99)}-{number}" if chance.random() < 0.3 else None,
            Subscription(
                tuple(name for name in names if chance.random() < 0.8),
                rack=chance.choice(RACKS) if has_racks and chance.random() < 0.8 else None,
            ),
        )
        for number in range(chance.randint(1, 6))
    ]
    return chance.choice(["range", "roundrobin"]), members, topics


def told(case: Case) -> str:
    assignor, members, topics = case
    lines = [
        " ".join(["topic", name, *("+".join(sorted(racks)) or "-" for racks in partitions)])
        for name, partitions in topics.items()
    ]
    for member_id, instance, said in members:
        lines.append(
            " ".join(["member", member_id, instance or "-", said.rack or "-", *said.topics])
        )
    return "\n".join([*lines, f"assign {assignor}", ""])


def decided(case: Case) -> str:
    name, members, topics = case
    (assignor,) = assignors_of([name])
    assigned = assignor.assign(members, topics)
    return " ".join(
        f"{member_id}=" + ",".join(sorted(f"{topic}-{index}" for topic, index in partitions))
        for member_id, partitions in sorted(assigned.items())
    )


def test_assignments_equal_those_of_kafkas_assignors() -> None:
    skip_because_of(peers.missing_java())
    if not shutil.which("javac"):
        pytest.skip("java has no compiler")
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    cases = [drawn(chance) for _ in range(CASES)]
    source = str(Path(__file__).with_name("Assign.java"))
    done = subprocess.run(
        ["java", "-cp", java.classpath(), source],
        input="".join(map(told, cases)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == CASES
    for case, answer in zip(cases, answers, strict=True):
        assert decided(case) == answer, told(case)
