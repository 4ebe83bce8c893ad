"""TLS, SASL and what belongs to them, for both sides of a connection: knows neither broker nor
clients.
"""
