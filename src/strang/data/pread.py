"""Many small reads of a file in one compiled loop that lets go of the interpreter."""

import ctypes

import numba
import numpy as np

_pread = ctypes.CDLL(None).pread
_pread.restype, _pread.argtypes = ctypes.c_ssize_t, [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]


@numba.njit(nogil=True)
def read_into(handle, content, lengths, offsets):
    """Bytes from each offset on, one after the other into `content`; returns how many until one fell short."""
    place = content.ctypes.data
    done = np.int64(0)
    for i in range(lengths.shape[0]):
        if _pread(handle, place + done, lengths[i], offsets[i]) != lengths[i]:
            break
        done += lengths[i]
    return done
