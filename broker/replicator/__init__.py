"""What a follower does: fetch from leaders, and cut and repair its logs by what they have."""
