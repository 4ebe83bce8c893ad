"""Which version of an API two sides speak."""

import pytest

from qbus.clients.net.versions import SPOKEN, SPOKEN_BY_ID, highest_common
from qbus.errors import ApiError, ErrorCode
from qbus.wire import API, ApiKey


@pytest.mark.parametrize(
    ("served", "version"),
    [((0, 20), 12), ((0, 12), 12), ((0, 9), 9), ((3, 3), 3), ((12, 20), 12)],
)
def test_the_highest_that_both_know(served: tuple[int, int], version: int) -> None:
    assert highest_common(ApiKey.PRODUCE, {0: served}) == version


@pytest.mark.parametrize("served", [{}, {0: (0, 2)}, {0: (13, 14)}, {0: (5, 4)}])
def test_none_in_common(served: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(ApiError, match="PRODUCE") as caught:
        highest_common(ApiKey.PRODUCE, served)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("api", "spoken"), [*SPOKEN.items(), *SPOKEN_BY_ID.items()], ids=str)
def test_the_codec_has_every_version_that_is_spoken(api: ApiKey, spoken: tuple[int, int]) -> None:
    low, high = spoken
    known = API[api]
    assert known.min_version <= low <= high <= known.max_version
