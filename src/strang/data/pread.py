"""Many small reads of a file in one compiled loop that releases the interpreter lock."""

import ctypes

import numba
import numpy as np

_pread = ctypes.CDLL(None).pread
_pread.restype, _pread.argtypes = ctypes.c_ssize_t, [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]


@numba.njit(nogil=True)
def read_into(handle, content, lengths, offsets):
    """See `strang.data.npy.read_bytes`."""
    place = content.ctypes.data
    done = np.int64(0)
    for i in range(lengths.shape[0]):
        if _pread(handle, place + done, lengths[i], offsets[i]) != lengths[i]:
            break
        done += lengths[i]
    return done
