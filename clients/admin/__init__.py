"""The admin client: topics, configuration, groups, records, the cluster."""

from .admin import Admin

__all__ = ["Admin"]
