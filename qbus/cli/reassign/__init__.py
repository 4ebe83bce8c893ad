"""`qbus reassign`: moves partitions to other brokers."""
