"""The same tests for both twins of the codec."""

import importlib
import importlib.util
from collections.abc import Iterator
from types import ModuleType

import pytest

from qbus.records import codec


def is_built() -> bool:
    """Whether there is a compiled codec from these sources."""
    if importlib.util.find_spec("qbus.records._codec") is None:
        return False
    built = importlib.import_module("qbus.records._codec")
    return getattr(built, "REVISION", 1) == codec.REVISION


IS_BUILT = is_built()
NOT_BUILT = "the compiled codec was not built: there was no compiler, or not from these sources"
MODULES = {"python": "qbus.records.pure", "compiled": "qbus.records._codec"}


@pytest.fixture(scope="module", params=list(MODULES))
def twin(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Make one twin the codec in use."""
    if request.param == "compiled" and not IS_BUILT:
        pytest.skip(NOT_BUILT)
    module = importlib.import_module(MODULES[request.param])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "twin", module)
        yield module


@pytest.fixture(scope="module")
def twins() -> tuple[ModuleType, ModuleType]:
    """Both twins, to compare them."""
    if not IS_BUILT:
        pytest.skip(NOT_BUILT)
    python, compiled = (importlib.import_module(name) for name in MODULES.values())
    return python, compiled
