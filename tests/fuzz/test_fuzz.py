"""Coverage-guided fuzzing of everything that reads bytes from the network, for a short while."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from struct import pack

import pytest

from qbus.records import build_batch
from qbus.wire import API

if importlib.util.find_spec("atheris") is None:
    pytest.skip("atheris is not installed", allow_module_level=True)

_RUNS = 15_000


def seeds() -> dict[str, list[bytes]]:
    """Something that each target accepts, to start from."""
    requests = [pack(">hhih", api.key, api.max_version, 1, -1) + bytes(40) for api in API.values()]
    batch = bytes(build_batch([(b"key", b"value", (("h", b"v"),), 1)]))
    return {
        "request": requests,
        "response": [bytes([index, 0]) + bytes(40) for index in range(len(API))],
        "records": [batch, batch + batch],
        "codecs": [batch],
        "frames": [pack(">i", 5) + b"hello" + pack(">i", 300) + bytes(300)],
    }


@pytest.mark.parametrize("target", ["request", "response", "records", "codecs", "frames"])
def test_no_input_ends_in_an_unexpected_error(target: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds()[target]):
        (corpus / str(number)).write_bytes(seed)
    # A process inherits the peak of the memory of the one that starts it: let that be a small one.
    forked = ["sh", "-c", '"$@"; exit $?', "sh"]
    command = [*forked, sys.executable, "-m", "tests.fuzz.targets", target, str(corpus)]
    options = [f"-runs={_RUNS}", "-max_len=4096", "-rss_limit_mb=1024", "-timeout=20"]
    done = subprocess.run(
        [*command, *options, f"-artifact_prefix={tmp_path}/"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {_RUNS} runs" in done.stderr
