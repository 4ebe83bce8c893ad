"""The mirror between datacenters: the same batches at the same offsets."""
