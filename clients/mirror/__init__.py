"""The mirror between datacenters (IDCs): the same batches at the same offsets."""
