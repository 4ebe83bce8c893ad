"""The configuration of a mirror: what it can state, and how the rest is refused."""

from pathlib import Path

import pytest

from qbus.clients.mirror.config import LinkConfig, MirrorConfig, links, load, parse, to_toml
from qbus.errors import ConfigError

TOP = 'topics = ["orders", "logs-.*"]\n'
TARGET = '[target]\nidc = "b"\nbootstrap = "b1:9092"\n'
SOURCE = '[[source]]\nidc = "a"\nbootstrap = "a1:9092"\n'
GOOD = TOP + TARGET + SOURCE


def read(text: str) -> MirrorConfig:
    return parse(text.encode())


def only_link(text: str) -> LinkConfig:
    (link,) = links(read(text))
    return link


def test_few_fields_are_required() -> None:
    link = only_link(GOOD)
    assert (link.source, link.target) == ("a", "b")
    assert (link.source_bootstrap, link.target_bootstrap) == ("a1:9092", "b1:9092")
    assert link.name == "a->b"
    assert link.relay
    assert link.rate_limit_bytes == 0


def test_a_link_has_the_topics_of_the_top_and_no_internal_ones() -> None:
    selection = only_link(GOOD).selection
    assert "logs-x" in selection
    assert "__consumer_offsets" not in only_link(GOOD + 'topics = [".*"]').selection


def test_a_source_may_state_its_own_topics() -> None:
    text = GOOD + 'topics = [".*"]\nexclude = ["secret"]\nrelay = false\nrate_limit_bytes = 9'
    link = only_link(text)
    assert "orders" in link.selection
    assert "secret" not in link.selection
    assert not link.relay
    assert link.rate_limit_bytes == 9


def test_there_is_a_link_for_each_source() -> None:
    found = links(read(GOOD + SOURCE.replace('"a"', '"c"')))
    assert [link.name for link in found] == ["a->b", "c->b"]
    assert len({link.group for link in found}) == 2


def test_the_mirrors_own_groups_are_never_synced() -> None:
    link = only_link(GOOD)
    assert "readers" in link.group_selection
    assert link.group not in link.group_selection


def test_the_targets_bootstrap_may_be_a_default() -> None:
    text = GOOD.replace('bootstrap = "b1:9092"\n', "")
    assert (
        parse(text.encode(), defaults={"target": {"bootstrap": "zk://z:1"}}).target.bootstrap
        == "zk://z:1"
    )
    stated = parse(GOOD.encode(), defaults={"target": {"bootstrap": "zk://z:1"}})
    assert stated.target.bootstrap == "b1:9092"


def test_what_is_written_is_read_back() -> None:
    config = read(
        GOOD
        + """
        exclude = ["x"]
        [topics_at_target]
        replication_factor = 3
        config_exclude = ["retention.ms"]
        [transfer]
        in_flight = 16
        [groups]
        include = ["readers"]
        [fallback]
        reproduce = "never"
        """
    )
    assert read(to_toml(config)) == config


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "target is missing: expected a table"),
        (TOP + SOURCE, "target is missing"),
        (TOP + TARGET, r"nothing to mirror: expected at least one \[\[source\]\]"),
        (TARGET + SOURCE, r"source\[1\]\.topics is missing, and there are none at the top"),
        (TOP + '[target]\nidc = "b"\n' + SOURCE, "target.bootstrap is missing: expected host:port"),
        (TOP + '[target]\nbootstrap = "h:9"\n' + SOURCE, "target.idc is missing"),
        (GOOD.replace("b1:9092", "b1:x"), "target.bootstrap = 'b1:x': expected host:port"),
        (GOOD.replace("a1:9092", "zk://"), r"source\[1\]\.bootstrap = 'zk://': expected"),
        (
            GOOD.replace('"a"', '"a.b"'),
            r"source\[1\]\.idc = 'a\.b': expected the name of a datacenter",
        ),
        (GOOD.replace('"a"', '""'), r"source\[1\]\.idc = ''"),
        (GOOD.replace('"a"', '"%s"' % ("a" * 65)), r"source\[1\]\.idc"),
        (GOOD.replace('"a"', '"b"'), r"source\[1\]\.idc = 'b': it is the target's"),
        (GOOD + SOURCE, r"source\[2\]\.idc = 'a': it is there twice"),
        (GOOD + 'topics = "orders"', r"source\[1\]\.topics = 'orders': expected a list"),
        (GOOD + 'topics = ["("]', r"source\[1\]\.topics = \['\('\]: .*'\(': missing \)"),
        (GOOD + 'topics = [""]', "one of them is empty"),
        (GOOD + "topics = [1]", r"source\[1\]\.topics = \[1\]"),
        (GOOD + "topcis = []", r"source\[1\]\.topcis: no such field; did you mean topics\?"),
        (GOOD + "rate_limit_bytes = -1", "expected a whole number from 0"),
        (GOOD + "relay = 1", "expected true or false"),
        (GOOD + "[transfer]\nin_flight = 0", "transfer.in_flight = 0: expected a whole number"),
        (
            GOOD + "[transfer]\nfetch_bytes = 1024\npartition_fetch_bytes = 2048",
            "transfer.partition_fetch_bytes = 2048: expected at most fetch_bytes",
        ),
        (GOOD + '[fallback]\nreproduce = "maybe"', "one of auto, never"),
        (GOOD + "[groups]\ninterval_ms = 1", "groups.interval_ms = 1: expected a whole number"),
        (GOOD + "[topics_at_target]\nconfig_exclude = [3]", "topics_at_target.config_exclude"),
        ("x = ", "not TOML"),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(text)


def test_a_refused_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mirror.toml"
    path.write_text("x = 1")
    with pytest.raises(ConfigError, match=r"mirror\.toml: x: no such field"):
        load(path)


def test_each_side_has_its_own_security() -> None:
    text = (
        TOP
        + TARGET
        + '[target.security]\nprotocol = "SSL"\nssl.ca.location = "/b.pem"\n'
        + SOURCE
        + 'security.protocol = "SASL_PLAINTEXT"\nsecurity.sasl.mechanism = "PLAIN"\n'
        + 'security.sasl.username = "mirror"\nsecurity.sasl.password = "env:MIRROR"\n'
    )
    link = only_link(text)
    assert dict(link.target_security.stated)["ssl.ca.location"] == "/b.pem"
    assert dict(link.source_security.stated)["sasl.username"] == "mirror"
    plain = only_link(GOOD)
    assert plain.source_security.security().protocol == "PLAINTEXT"


def test_a_password_is_never_in_a_configuration() -> None:
    with pytest.raises(ConfigError, match=r"target\.security\.sasl\.password: expected") as caught:
        read(TOP + TARGET + '[target.security]\nsasl.password = "hunter2"\n' + SOURCE)
    assert "hunter2" not in str(caught.value)
