"""The clients for programs without asyncio: the same names and arguments, with methods that
block.
"""
