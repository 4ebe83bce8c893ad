"""`qbus reassign`: moving partitions to other brokers."""
