# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""The compiled codec; ``qbus.records.pure`` is its twin in plain Python.

Both accept and refuse the same values, with the same errors. Raw memory is read only within bounds
that were checked before: the bounds of buffers, and the lengths that their content claims.
"""

from array import array
from time import monotonic

from cython cimport final, freelist
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.ref cimport Py_DECREF, PyObject, PyTypeObject
from cpython.sequence cimport (
    PySequence_Fast,
    PySequence_Fast_GET_ITEM,
    PySequence_Fast_GET_SIZE,
)
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8, PyUnicode_GET_LENGTH
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object) noexcept
    const uint8_t* PyUnicode_1BYTE_DATA(object) noexcept

from qbus._tuples cimport new_tuple, put
from qbus.records._parse cimport *
from qbus.records._write cimport OVERHEAD, put_field, put_record, put_varint, varint_size

from qbus.errors import CorruptBatch, OversizedBatch

from .fields import encode_headers, timestamp_delta, to_bytes
from .header import HEADER_SIZE
from .record import ConsumerRecord

REVISION = 6  # see codec.py

include "_lists.pxi"
include "_decode.pxi"
include "_columns.pxi"
include "_rows.pxi"
include "_append_lock.pxi"
include "_runs.pxi"
