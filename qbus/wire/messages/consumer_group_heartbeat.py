"""ConsumerGroupHeartbeat (API 68): join a consumer group, stay in it, leave it (KIP-848).

Version 1 adds subscriptions to a regular expression; members choose their own ids from then on.
"""

from qbus.wire.declare import Int16, Int32, String, Struct, Uuid, field


class TopicPartitions(Struct):
    topic_id: Uuid = field()
    partitions: list[Int32] = field()


class ConsumerGroupHeartbeatRequest(Struct, flexible="0+"):
    group_id: String = field()
    member_id: String = field()
    # 0: join; -1: leave; -2: leave, and come back as the same static member.
    member_epoch: Int32 = field()
    # None, or -1: as in the last heartbeat; so all that follow.
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(default=None)
    subscribed_topic_regex: String | None = field("1+", default=None, ignorable=False)
    server_assignor: String | None = field(default=None)
    topic_partitions: list[TopicPartitions] | None = field(default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field()


class ConsumerGroupHeartbeatResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32 = field()
    heartbeat_interval_ms: Int32 = field()
    # None: as the member knows it.
    assignment: Assignment | None = field(default=None)
