"""The time that the event loop works at a coroutine, without the time that it waits."""

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, Protocol


class Stopwatch(Protocol):
    """What is told when work begins and pauses."""

    def resume(self) -> None:
        """It is worked at from now on."""

    def pause(self) -> None:
        """It waits."""


@coroutine
def measured(watch: Stopwatch, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run ``work`` and return what it returns; ``watch`` runs only while it is worked at."""
    sent: Any = None
    raised: BaseException | None = None
    while True:
        watch.resume()
        try:
            waiting = work.send(sent) if raised is None else work.throw(raised)
        except StopIteration as end:
            return end.value
        finally:
            watch.pause()
        try:
            sent, raised = (yield waiting), None
        except BaseException as error:  # noqa: BLE001 - it is for the work, cancellation too
            sent, raised = None, error
