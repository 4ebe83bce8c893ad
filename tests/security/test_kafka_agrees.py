"""Apache Kafka itself answers a sample of the cells as the table says, in the same run as Qbus.

Who asks is drawn anew in every run. ``pytest tests/security/test_matrix.py --target kafka`` asks
about all cells.
"""

import random
from pathlib import Path

import pytest

from perf.peers import kafka
from tests.support.seeds import new_seed
from tests.support.tools import skip_because_of

from .matrix.principals import USERS
from .matrix.table import TABLE
from .matrix.world import KafkaWorld
from .test_matrix import asked, disagreements

pytestmark = pytest.mark.security

_USERS = 24


def test_a_sample_of_the_cells(tmp_path: Path) -> None:
    skip_because_of(kafka.missing())
    seed = new_seed()
    chosen = random.Random(seed).sample([one for one in USERS if not one.is_bare], _USERS)
    chosen += random.Random(seed).sample([one for one in USERS if one.is_bare], 6)
    with KafkaWorld(tmp_path, chosen) as world:
        cells = asked(world, chosen)
    assert sum(map(len, cells.values())) >= 300
    found = [f"{row.label}: {one}" for row in TABLE for one in disagreements(row, cells, "kafka")]
    assert found == [], f"QBUS_SEED={seed}"
