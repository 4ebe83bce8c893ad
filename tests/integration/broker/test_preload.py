"""What a request imports: nothing, once the broker has started, for an import opens a file."""

from contextlib import suppress
from pathlib import Path

from qbus.wire import API, ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.raw_client import RawClient, frame
from tests.support.waiting import wait_until

DONE = "all handlers are imported"


def test_no_request_imports_a_module_once_the_broker_has_started(tmp_path: Path) -> None:
    options = ["--log-level", "debug"]
    with BrokerProcess(tmp_path, *options, env={"PYTHONVERBOSE": "1"}) as broker:
        wait_until(lambda: DONE in broker.log_text(), "the handlers are not imported")
        assert "import 'qbus." in broker.log_text(), "the interpreter tells what it imports"
        for key, api in API.items():
            for version in {api.min_version, api.max_version}:
                with RawClient(broker.port, timeout=0.2) as client, suppress(TimeoutError):
                    client.send(frame(ApiKey(key), version, api.request()))
                    client.receive_frame()  # some wait for others, and some get no answer
        since = broker.log_text().rpartition(DONE)[2].splitlines()
    assert [line for line in since if line.startswith("import ")] == []
