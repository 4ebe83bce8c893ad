"""Carries decisions out: each in a transaction of its own, those of one request together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, NodeError, Op, StoreError, TransactionTooLarge
from qbus.metadata.feed import decide
from qbus.metadata.znodes import ChangeNode

from ..metadata.cache import MetadataCache

_ATTEMPTS = 5

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Item = TypeVar("Item")


class Decision(NamedTuple, Generic[T_co]):
    """What to write, if anything, what that changes, and what the outcome is then."""

    outcome: T_co
    ops: Sequence[Op]
    change: ChangeNode


class Decisions:
    """One request's decisions at a time."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache) -> None:
        self._store = store
        self._metadata = metadata
        self._lock = asyncio.Lock()

    async def carry_out(
        self,
        plan: Callable[[Item], Awaitable[Decision[T]]],
        items: Sequence[Item],
        *,
        dry: bool = False,
    ) -> list[T | ApiError]:
        """Decide on each item and write that; of each the outcome, or why it was refused.

        ``dry``: decide only.
        """
        async with self._lock:
            tries = [self._try(plan, item, dry=dry) for item in items]
            done = await asyncio.gather(*tries)
            written = [sequence for _, sequence in done if sequence is not None]
            if written:
                try:
                    await self._metadata.applied(max(written))
                except StoreError as error:
                    lost = _unknown(error)
                    return [lost if sequence is not None else outcome for outcome, sequence in done]
            return [outcome for outcome, _ in done]

    async def _try(
        self, plan: Callable[[Item], Awaitable[Decision[T]]], item: Item, *, dry: bool
    ) -> tuple[T | ApiError, int | None]:
        """The outcome, and the sequence number of the change if something was written."""
        try:
            for _ in range(_ATTEMPTS):
                fence = self._metadata.fence()
                decision = await plan(item)
                if dry or not decision.ops:
                    return decision.outcome, None
                try:
                    written = await decide(self._store, [fence], decision.ops, decision.change)
                except NodeError:  # somebody was faster: learn what they did
                    await self._metadata.catch_up()
                    continue
                return decision.outcome, written
        except ApiError as error:
            return error, None
        except TransactionTooLarge as error:
            return ApiError(ErrorCode.POLICY_VIOLATION, f"too much at once: {error}"), None
        except StoreError as error:
            return _unknown(error), None
        return ApiError(ErrorCode.NOT_CONTROLLER, "others change the same all the time"), None


def _unknown(error: StoreError) -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"nobody knows whether it was done: {error}")
