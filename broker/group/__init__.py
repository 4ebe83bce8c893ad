"""Consumer groups: membership, rebalances, committed offsets."""
