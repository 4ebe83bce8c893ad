"""The matrix: what each kind of request is answered under each kind of rule.

``table`` states it from Apache Kafka's documentation and behaviour, and knows nothing of our
handlers; ``rules`` states how Kafka decides; the tests ask brokers.
"""
