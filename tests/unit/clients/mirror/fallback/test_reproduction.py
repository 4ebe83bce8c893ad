"""What a link tells of itself whose target is no Qbus."""

from dataclasses import replace

import pytest

from qbus.clients.cluster import Cluster
from qbus.clients.mirror.config import Groups, LinkConfig
from qbus.clients.mirror.fallback import Reproduction
from qbus.clients.mirror.status.document import link_document

CONFIG = LinkConfig("a", "b", "s:1", "t:1", ("t",))


@pytest.mark.parametrize("wanted", [True, False])
def test_who_wants_groups_carried_over_is_told_that_they_are_not(wanted: bool) -> None:
    config = replace(CONFIG, groups=Groups(enabled=wanted))
    clusters = [Cluster(one, "test", 1.0) for one in ("s:1", "t:1")]
    document = link_document(Reproduction(config, *clusters).status())
    assert document["reproduces"]
    assert ("not carried over" in (document["groups"]["error"] or "")) == wanted
