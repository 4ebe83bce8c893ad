"""Tuples of any kind, named ones too, that are made empty and filled one item after the other.

Every item has to be put before any other code sees the tuple, and each only once.
"""

from cpython.ref cimport Py_INCREF, PyTypeObject
from cpython.tuple cimport PyTuple_SET_ITEM

cdef extern from *:
    """
    static CYTHON_INLINE PyObject* new_tuple(PyTypeObject* kind, Py_ssize_t size) {
        PyObject* made = PyType_GenericAlloc(kind, size);
    #if PY_VERSION_HEX >= 0x030E0000
        if (made) ((PyTupleObject*)made)->ob_hash = -1;  /* not computed yet */
    #endif
        return made;
    }
    """
    object new_tuple(PyTypeObject* kind, Py_ssize_t size)


cdef inline void put(object made, Py_ssize_t index, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, index, item)
