"""Where checkpoints are that nobody has chosen a place for."""

from pathlib import Path
from typing import Any, cast

import pytest

from qbus.clients.pipelines.config import Output, StatsConfig
from qbus.clients.pipelines.results import checkpoint
from qbus.clients.pipelines.run import Mode, PipelineRun
from qbus.errors import ConfigError


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def place(config: StatsConfig, mode: Mode = Mode.STREAM, state: str = "") -> str:
    with checkpoint(
        config, config.output, PipelineRun(mode, cast("Any", Watcher()), state)
    ) as found:
        return found


def test_a_configured_checkpoint_comes_first() -> None:
    assert place(StatsConfig(checkpoint="/c", output=Output(path="/r")), state="/s") == "/c"


def test_it_is_with_the_results_or_in_the_state_directory_by_the_name() -> None:
    assert place(StatsConfig(output=Output(path="/r")), state="/s") == "/r/_checkpoint"
    assert place(StatsConfig(output=Output(topic="t")), state="/s") == "/s/t"
    assert place(StatsConfig(name="n", output=Output(topic="t")), state="/s") == "/s/n"


def test_results_in_a_topic_need_a_checkpoint_without_a_state_directory() -> None:
    with pytest.raises(ConfigError, match="checkpoint is missing"):
        place(StatsConfig(output=Output(topic="t")))


@pytest.mark.parametrize("mode", [Mode.STREAM, Mode.ONCE])
def test_the_checkpoint_of_the_console_is_temporary(mode: Mode) -> None:
    watcher = Watcher()
    config = StatsConfig()
    with checkpoint(config, config.output, PipelineRun(mode, cast("Any", watcher), "/s")) as found:
        assert Path(found).is_dir()
    assert not Path(found).exists()
    assert len(watcher.notes) == (mode is Mode.ONCE)
