"""`qbus broker`: the listeners that it is told, and those that it refuses."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qbus.broker import workers
from qbus.cli.root import qbus
from tests.unit.cli.security_fakes import failure


@pytest.fixture(autouse=True)
def garbage_is_collected() -> Iterator[None]:
    """The command turns that off while it imports."""
    yield
    gc.enable()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations of brokers that were started."""
    found: list[Any] = []

    def run(config: Any, *_: object) -> int:
        found.append(config)
        return 0

    monkeypatch.setattr(workers, "run", run)
    return found


@pytest.mark.parametrize("listen", ["0.0.0.0:9092", "[::]:9092", "PLAINTEXT://192.0.2.1:9092"])
def test_nobody_listens_to_a_network_by_accident(listen: str, started: list[Any]) -> None:
    said = failure(["broker", "--data-dir", "data", "--listen", listen])
    assert "allow.insecure=true" in said
    assert "SASL_SSL" in said
    assert not started


def test_several_listeners(started: list[Any], tmp_path: Path) -> None:
    listeners = ("PLAINTEXT://127.0.0.1:9092", "SASL_SSL://0.0.0.0:9093")
    advertised = ("PLAINTEXT://127.0.0.1:9092", "SASL_SSL://bus.example:9093")
    options = {
        "ssl.keystore.location": tmp_path / "broker.pem",
        "sasl.inter.broker.username": "broker",
        "sasl.inter.broker.password": "a long random word",
        "inter.broker.listener.name": "SASL_SSL",
    }
    words = ["broker", "--data-dir", str(tmp_path)]
    words += [word for one in listeners for word in ("--listen", one)]
    words += [word for one in advertised for word in ("--advertise", one)]
    words += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    result = CliRunner().invoke(qbus, words)
    assert result.exit_code == 0, result.output
    (config,) = started
    assert config.listeners == listeners
    assert config.advertised_listeners == advertised


def test_without_a_word_it_listens_on_this_machine_in_the_clear(started: list[Any]) -> None:
    assert CliRunner().invoke(qbus, ["broker", "--data-dir", "data"]).exit_code == 0
    (config,) = started
    assert [str(one) for one in config.kafka_listeners] == ["PLAINTEXT://127.0.0.1:9092"]


def test_settings_without_effect_are_accepted_with_a_warning(
    started: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('"num.replica.fetchers" = 4\n')
    words = ["broker", "--data-dir", str(tmp_path), "--config", str(file)]
    result = CliRunner().invoke(qbus, [*words, "-o", "metric.reporters=x"])
    assert result.exit_code == 0, result.output
    assert len(started) == 1
    for name in ("num.replica.fetchers", "metric.reporters"):
        (line,) = [line for line in result.stderr.splitlines() if name in line]
        assert "WARNING" in line
        assert "has no effect" in line


def test_an_empty_address_of_zookeeper_does_not_mean_the_embedded_store(started: list[Any]) -> None:
    said = failure(["broker", "--data-dir", "data", "--zookeeper", ""], 2)
    assert "Invalid value for '--zookeeper': '': expected host:port,.../chroot" in said
    assert started == []
