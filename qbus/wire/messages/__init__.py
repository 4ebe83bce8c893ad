"""One module per API: its request, its response, and the structs within.

Names, nesting, versions and defaults are those of Kafka's message definitions. A module is imported
at the first use of a message of its API.
"""
