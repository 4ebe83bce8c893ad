"""Which twin is in use, and that a broker imports neither."""

import os
import subprocess
import sys

import pytest

from .conftest import IS_BUILT, NOT_BUILT


def run(code: str, codec: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "QBUS_CODEC": codec}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )


SHOW = "from qbus.records import CODEC, codec; print(CODEC, codec.twin.__name__)"


def test_plain_python_on_demand() -> None:
    assert run(SHOW, "python").stdout == "python qbus.records.pure\n"


@pytest.mark.skipif(not IS_BUILT, reason=NOT_BUILT)
@pytest.mark.parametrize("demanded", ["", "compiled"])
def test_compiled_where_it_was_built(demanded: str) -> None:
    assert run(SHOW, demanded).stdout == "compiled qbus.records._codec\n"


HIDDEN = "import sys; sys.modules['qbus.records._codec'] = None; "


def test_plain_python_where_nothing_was_built() -> None:
    assert run(HIDDEN + SHOW).stdout == "python qbus.records.pure\n"


def test_a_demanded_codec_that_was_not_built_is_an_error() -> None:
    assert (
        "ModuleNotFoundError: import of qbus.records._codec"
        in run(HIDDEN + SHOW, "compiled").stderr
    )


OLD = (
    "import sys, types; old = types.ModuleType('qbus.records._codec'); "
    "sys.modules[old.__name__] = old; "
)


def test_plain_python_where_other_sources_were_built() -> None:
    assert run(OLD + SHOW).stdout == "python qbus.records.pure\n"
    assert (
        "ImportError: the compiled codec is of another revision"
        in run(OLD + SHOW, "compiled").stderr
    )


def test_a_broker_imports_no_codec() -> None:
    code = (
        "import sys, qbus.broker.server\n"
        "print([name for name in sys.modules if name.startswith('qbus.records.')"
        " and name.split('.')[2] in {'codec', '_codec', 'pure', 'arrow', 'columns', 'encode'}"
        " or name == 'pyarrow'])"
    )
    assert run(code).stdout == "[]\n"


def test_every_public_name_is_there() -> None:
    import qbus.records

    for name in qbus.records.__all__:
        assert getattr(qbus.records, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = qbus.records.nothing
