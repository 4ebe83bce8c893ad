"""One module for each API: what a request does, and which versions differ in what.

Each has a function ``handle(broker, context, request)`` that returns the response, an awaitable of
it, or None when the request gets none.
"""
