"""Three brokers and a real ZooKeeper."""
