"""The client of other brokers of the cluster; it knows no use of it, such as replication."""
