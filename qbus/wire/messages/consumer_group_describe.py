"""ConsumerGroupDescribe (API 69): the state and the members of consumer groups (KIP-848).

Version 1 tells which protocol each member speaks (KIP-1099).
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, String, Struct, Uuid, field


class ConsumerGroupDescribeRequest(Struct, flexible="0+"):
    group_ids: list[String] = field()
    include_authorized_operations: Bool = field()


class TopicPartitions(Struct):
    topic_id: Uuid = field()
    topic_name: String = field()
    partitions: list[Int32] = field()


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field()


class Member(Struct):
    member_id: String = field()
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    member_epoch: Int32 = field()
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: list[String] = field()
    subscribed_topic_regex: String | None = field(default=None)
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    # -1: unknown; 0: the classic protocol; 1: the consumer protocol.
    member_type: Int8 = field("1+", default=-1)


class DescribedGroup(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    group_id: String = field()
    group_state: String = field()
    group_epoch: Int32 = field()
    assignment_epoch: Int32 = field()
    assignor_name: String = field()
    members: list[Member] = field()
    authorized_operations: Int32 = field(default=-2147483648)


class ConsumerGroupDescribeResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    groups: list[DescribedGroup] = field()
