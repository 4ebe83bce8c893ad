"""DescribeCluster (API 60): the brokers and the controller (KIP-700).

Version 1 distinguishes brokers and controllers (KIP-919); 2 adds fenced brokers (KIP-1073).
"""

from qbus.wire.declare import Bool, Int8, Int16, Int32, String, Struct, field


class DescribeClusterRequest(Struct, flexible="0+"):
    include_cluster_authorized_operations: Bool = field()
    endpoint_type: Int8 = field("1+", default=1, ignorable=False)
    include_fenced_brokers: Bool = field("2+", ignorable=False)


class DescribeClusterBroker(Struct):
    broker_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: String | None = field(default=None)
    is_fenced: Bool = field("2+", ignorable=False)


class DescribeClusterResponse(Struct, flexible="0+"):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(default=None)
    endpoint_type: Int8 = field("1+", default=1, ignorable=False)
    cluster_id: String = field()
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker] = field()
    cluster_authorized_operations: Int32 = field(default=-2147483648)
