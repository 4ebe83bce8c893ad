"""CRC-32C (Castagnoli), the checksum of record batches: RFC 3720, appendix B.4.

The ``crc32c`` package uses the processor's instruction; where it is not installed, crcmod computes
the same sums, some fifty times slower.
"""

from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

Buffer = bytes | bytearray | memoryview


@cache
def _crcmod() -> Callable[..., int]:
    import crcmod.predefined  # noqa: PLC0415 - builds tables that few machines need

    sums: Callable[..., int] = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
    return sums


def portable_crc32c(data: Buffer, crc: int = 0) -> int:
    """The same as :func:`crc32c`, on any machine."""
    return _crcmod()(data, crc)


def _fastest() -> Callable[[Buffer, int], int]:
    """The package's extension module, without the command line that the package imports too.

    That would cost every start of a broker 20 ms.
    """
    package = find_spec("crc32c")
    places = package and package.submodule_search_locations
    spec = places and PathFinder.find_spec("_crc32c", list(places))
    if not spec or spec.loader is None:
        return portable_crc32c
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    hardware: Callable[[Buffer, int], int] = extension.crc32c
    return hardware


_crc32c = _fastest()


def crc32c(data: Buffer, crc: int = 0) -> int:
    """The CRC-32C of ``data``, an unsigned 32-bit integer.

    ``crc`` is the sum of what came before, so that ``crc32c(b, crc32c(a)) == crc32c(a + b)``.
    """
    return _crc32c(data, crc)
