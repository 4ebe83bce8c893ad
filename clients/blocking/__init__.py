"""The blocking faces of the clients: the same names and arguments, for programs without asyncio."""
