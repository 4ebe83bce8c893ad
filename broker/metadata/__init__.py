"""The metadata of the cluster as this broker knows it: a cache that follows the feed of changes."""
