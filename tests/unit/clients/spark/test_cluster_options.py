"""Where the cluster is: under Kafka's name or ours, and plain."""

import pickle
from pathlib import Path

import pytest

from qbus.clients.spark.cluster_options import ClusterOptions, security_options
from qbus.clients.spark.options import OptionError, Options
from qbus.security.client import ClientSecurity


def parsed(**given: str) -> ClusterOptions:
    """What is made of options with ``__`` for dots."""
    names = {name.replace("__", "."): value for name, value in given.items()}
    return ClusterOptions.of(Options(names), "me")


@pytest.mark.parametrize("name", ["kafka__bootstrap__servers", "qbus__bootstrap"])
def test_either_name_says_where_the_cluster_is(name: str) -> None:
    assert parsed(**{name: " one:9092,two:9092 "}).bootstrap == "one:9092,two:9092"


def test_the_rest_has_defaults() -> None:
    found = parsed(qbus__bootstrap="zk://one:2181/qbus")
    assert (found.client_id, found.request_timeout, found.metadata_max_age) == ("me", 30, 300)


def test_the_rest_can_be_chosen() -> None:
    found = parsed(
        qbus__bootstrap="one:9092", kafka__client__id="you", kafka__request__timeout__ms="1500"
    )
    assert (found.client_id, found.request_timeout) == ("you", 1.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "name the brokers"),
        ({"qbus__bootstrap": ""}, "give host:port"),
        ({"qbus__bootstrap": "one:port"}, "give host:port"),
        ({"qbus__bootstrap": "zk://"}, "zk://host:port"),
        ({"qbus__bootstrap": "a:1", "kafka__bootstrap__servers": "b:1"}, "give one"),
        ({"qbus__bootstrap": "a:1", "kafka__security__protocol": "TLS"}, "is one of PLAINTEXT"),
        ({"qbus__bootstrap": "a:1", "kafka__request__timeout__ms": "0"}, "at least 1"),
    ],
)
def test_invalid_cluster_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parsed(**given)


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECURE = {
    "kafka.bootstrap.servers": "one:9093",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": f'{SCRAM} required username="alice" password="hunter2";',
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "/ca.pem",
    "kafka.ssl.keystore.location": "/client.pem",
    "kafka.ssl.key.password": "hunter3",
}


def test_security_as_in_sparks_own_connector() -> None:
    found = ClusterOptions.of(Options(SECURE), "me")
    assert found.security.security() == ClientSecurity(
        protocol="SASL_SSL",
        ssl_ca_location="/ca.pem",
        ssl_certificate_location="/client.pem",
        ssl_key_password="hunter3",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="hunter2",
    )
    assert hash(found) == hash(pickle.loads(pickle.dumps(found)))


def test_names_of_librdkafka_and_a_secret_that_each_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "qbus.bootstrap": "one:9093",
        "kafka.security.protocol": "sasl_ssl",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "env:ONLY_THERE",
        "kafka.ssl.ca.location": "/ca.pem",
    }
    found = ClusterOptions.of(Options(given), "me")  # it is not read here
    assert "env:ONLY_THERE" in repr(found)
    monkeypatch.setenv("ONLY_THERE", "hunter2")
    assert found.security.security().sasl_password == "hunter2"


def test_a_file_of_properties_on_each_machine(tmp_path: Path) -> None:
    given = {"qbus.bootstrap": "one:9093", "qbus.security.file": str(tmp_path / "p")}
    found = ClusterOptions.of(Options(given), "me")
    (tmp_path / "p").write_text("security.protocol=SSL\nssl.ca.location=/ca.pem\n")
    assert found.security.security().protocol == "SSL"
    assert security_options(found.security) == {"qbus.security.file": str(tmp_path / "p")}


def test_options_can_be_made_of_what_they_say() -> None:
    found = ClusterOptions.of(Options(SECURE), "me")
    again = {"qbus.bootstrap": "one:9093", **security_options(found.security)}
    assert ClusterOptions.of(Options(again), "me").security == found.security


def test_no_secret_is_shown() -> None:
    assert "hunter" not in repr(ClusterOptions.of(Options(SECURE), "me"))
    for wrong in (
        {"kafka.sasl.jaas.config": "hunter2"},
        {"kafka.sasl.pasword": "hunter2"},
        {"kafka.ssl.truststore.password": "hunter2"},
        {"kafka.ssl.keystore.key": "hunter2"},
    ):
        with pytest.raises(OptionError, match=next(iter(wrong)).removeprefix("kafka.")) as caught:
            ClusterOptions.of(Options({**SECURE, **wrong}), "me")
        assert "hunter" not in str(caught.value)
