"""ShareGroupHeartbeat (API 76): join a share group, stay in it, leave it (KIP-932).

Version 1 is the first stable one; version 0 was an early access form that nobody serves.
"""

from qbus.wire.declare import Int16, Int32, String, Struct, Uuid, field


class ShareGroupHeartbeatRequest(Struct, flexible="0+"):
    group_id: String = field()
    member_id: String = field()
    # 0: join; -1: leave.
    member_epoch: Int32 = field()
    # None: as in the last heartbeat; so the names.
    rack_id: String | None = field(default=None)
    subscribed_topic_names: list[String] | None = field(default=None)


class TopicPartitions(Struct):
    topic_id: Uuid = field()
    partitions: list[Int32] = field()


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field()


class ShareGroupHeartbeatResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32 = field()
    heartbeat_interval_ms: Int32 = field()
    # None: as the member knows it.
    assignment: Assignment | None = field(default=None)
