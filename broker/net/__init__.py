"""Sockets: listeners, connections, frames and what is still to be sent. Knows no protocol."""
