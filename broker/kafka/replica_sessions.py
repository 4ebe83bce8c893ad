"""The sessions of all followers, found by their ids."""

from collections.abc import Callable, Iterator
from random import Random

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.fetch import FetchRequest

from ..partition.leader_throttle import LeaderThrottle
from .replica_session import Partitions, ReplicaSession

NO_SESSION = 0
NEW_EPOCH = 0
FINAL_EPOCH = -1

IDLE_S = 60.0
MAX_OF_ONE_REPLICA = 16

_MAX_ID = (1 << 31) - 1

IsLive = Callable[[int, int], bool]


class ReplicaSessions:
    """Opens sessions and closes them: bounded, and none of a broker that is gone.

    ``is_live`` tells whether a broker is registered under an epoch.
    """

    def __init__(
        self,
        partitions: Partitions,
        is_live: IsLive,
        throttle: LeaderThrottle,
        random: Random | None = None,
    ) -> None:
        self._partitions = partitions
        self._is_live = is_live
        self._throttle = throttle
        self._random = random or Random()  # noqa: S311 - ids are told apart, nothing is guarded
        self._sessions: dict[int, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ReplicaSession]:
        return iter(list(self._sessions.values()))

    def session_for(self, request: FetchRequest, now: float) -> ReplicaSession:
        """The session that a follower's request belongs to, or begins.

        A follower that wants none (epoch -1) gets one for this request alone.

        Raises:
            ApiError: STALE_BROKER_EPOCH, the follower is not registered under its epoch, as far as
                is known here; FETCH_SESSION_ID_NOT_FOUND; INVALID_FETCH_SESSION_EPOCH.
        """
        replica, broker_epoch = (
            request.replica_state.replica_id,
            request.replica_state.replica_epoch,
        )
        if not self._is_live(replica, broker_epoch):
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {replica} is not known under the epoch {broker_epoch}",
            )
        if request.session_epoch in {NEW_EPOCH, FINAL_EPOCH}:
            self._close(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return self._new(NO_SESSION, replica, broker_epoch)
            return self._begin(replica, broker_epoch, now)
        session = self._sessions.get(request.session_id)
        if session is None or (session.replica_id, session.broker_epoch) != (replica, broker_epoch):
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.next_epoch()
        return session

    def prune(self, now: float) -> None:
        """Close the sessions of those who are gone, or did not ask for long."""
        for session in self:
            is_idle = now - session.asked_at > IDLE_S
            if is_idle or not self._is_live(session.replica_id, session.broker_epoch):
                self._close(session.session_id)

    def close(self) -> None:
        """Close all."""
        for session in self:
            self._close(session.session_id)

    def _begin(self, replica: int, broker_epoch: int, now: float) -> ReplicaSession:
        self.prune(now)
        of_replica = [one for one in self if one.replica_id == replica]
        if len(of_replica) >= MAX_OF_ONE_REPLICA:
            self._close(min(of_replica, key=lambda one: one.asked_at).session_id)
        session_id = self._random.randint(1, _MAX_ID)
        while session_id in self._sessions:
            session_id = self._random.randint(1, _MAX_ID)
        session = self._new(session_id, replica, broker_epoch)
        self._sessions[session_id] = session
        return session

    def _new(self, session_id: int, replica: int, broker_epoch: int) -> ReplicaSession:
        return ReplicaSession(session_id, replica, broker_epoch, self._partitions, self._throttle)

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
