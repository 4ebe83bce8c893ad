"""A power cut at every change that a log makes to its files: nothing acknowledged is lost.

Each scenario runs once; before each change that it makes to a file or a directory, the crash is
tried in several ways, and what is left is opened and examined.
"""

import pytest

from qbus.clock import ManualClock

from .model import Scenario, Subject, check_survives
from .scenarios import CONFIG, DIRECTORIES, MOVES, SCENARIOS
from .simulated_files import (
    Choice,
    DataKept,
    EverythingKept,
    NamesKept,
    NothingKept,
    RandomKept,
    SimulatedFiles,
)

pytestmark = pytest.mark.crash

_RANDOM_CRASHES = 3


@pytest.mark.parametrize("scenario", [*SCENARIOS, *MOVES], ids=lambda scenario: scenario.__name__)
def test_every_state_opens_with_all_that_was_acknowledged(scenario: Scenario) -> None:
    files = SimulatedFiles()
    directories = DIRECTORIES if scenario in MOVES else DIRECTORIES[:1]
    subject = Subject(files, CONFIG, ManualClock(), directories=directories)
    points = 0

    def crash(kind: str, path: str) -> None:
        nonlocal points
        points += 1
        seeds = range(points * _RANDOM_CRASHES, (points + 1) * _RANDOM_CRASHES)
        choices: list[Choice] = [NothingKept(), EverythingKept(), DataKept(), NamesKept()]
        for choice in [*choices, *(RandomKept(seed) for seed in seeds)]:
            try:
                check_survives(subject, choice)
            except BaseException as error:
                seed = getattr(choice, "_seed", "")
                error.add_note(f"crash {points}, before {kind} {path}: {choice} {seed}")
                raise

    files.observe = crash
    scenario(subject)
    crash("the", "end")
    assert points > 10
