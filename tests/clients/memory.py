"""Numbers in cuDNN's data types as bytes in memory, and memory with guards around each tensor.

NumPy has no bfloat16 and no 8-bit floats: values are rounded here, to nearest even, and stored as words. 8-bit
floats saturate.
"""

import ctypes

import cudnn
import numpy as np

_T = cudnn.data_type

# data type -> (NumPy type of storage, unit roundoff, smallest subnormal)
STORAGE = {
    _T.FLOAT: (np.float32, 2.0**-24, 2.0**-149),
    _T.DOUBLE: (np.float64, 2.0**-53, 0.0),
    _T.HALF: (np.float16, 2.0**-11, 2.0**-24),
    _T.BFLOAT16: (np.uint16, 2.0**-8, 2.0**-133),
    _T.INT8: (np.int8, 0.0, 0.0),
    _T.UINT8: (np.uint8, 0.0, 0.0),
    _T.INT32: (np.int32, 0.0, 0.0),
    _T.INT64: (np.int64, 0.0, 0.0),
    _T.BOOLEAN: (np.bool_, 0.0, 0.0),
    _T.FP8_E4M3: (np.uint8, 2.0**-4, 2.0**-10),
    _T.FP8_E5M2: (np.uint8, 2.0**-3, 2.0**-17),
    _T.FP8_E8M0: (np.uint8, 2.0**-30, 0.0),  # powers of two, which are found exactly
}


def _byte_floats(exponent_bits, mantissa_bits, bias, finite):
    """The values of the non-negative codes of a float of 8 bits; `finite` of them are numbers."""
    codes = np.arange(1 << (exponent_bits + mantissa_bits))
    exponent, mantissa = codes >> mantissa_bits, (codes & ((1 << mantissa_bits) - 1)) / 2.0**mantissa_bits
    values = np.where(exponent > 0, (1 + mantissa) * 2.0 ** (exponent - bias), mantissa * 2.0 ** (1 - bias))
    values[finite:] = np.nan
    return values


# The values of codes 0 to 127, then those with a sign; of e8m0 all 256 have none.
_BYTES = {
    _T.FP8_E4M3: _byte_floats(4, 3, 7, 0x7F),
    _T.FP8_E5M2: _byte_floats(5, 2, 15, 0x7C),
    _T.FP8_E8M0: np.append(2.0 ** (np.arange(255) - 127), np.nan),
}


def _encode_bytes(values, data_type):
    numbers = _BYTES[data_type]
    numbers = numbers[~np.isnan(numbers)]
    size = np.abs(values)
    above = np.clip(np.searchsorted(numbers, size), 1, len(numbers) - 1)
    low, high = numbers[above - 1], numbers[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    codes = np.where(up, above, above - 1)
    return (codes | np.where((values < 0) & (data_type != _T.FP8_E8M0), 0x80, 0)).astype(np.uint8)


def _decode_bytes(words, data_type):
    if data_type == _T.FP8_E8M0:
        return _BYTES[data_type][words]
    return np.where(words & 0x80, -1.0, 1.0) * _BYTES[data_type][words & 0x7F]


def encode(values, data_type):
    """f64 values as stored words."""
    values = np.asarray(values, np.float64)
    if data_type == _T.BFLOAT16:
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    if data_type in _BYTES:
        return _encode_bytes(values, data_type)
    return values.astype(STORAGE[data_type][0])


def decode(words, data_type):
    """Stored words as f64."""
    if data_type == _T.BFLOAT16:
        return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if data_type in _BYTES:
        return _decode_bytes(words, data_type)
    return words.astype(np.float64)


def quantise(values, data_type):
    return decode(encode(values, data_type), data_type)


class Layout:
    """Extents and strides of a tensor, and the span of elements that it occupies."""

    def __init__(self, dims, strides):
        self.dims, self.strides = tuple(dims), tuple(strides)
        self.elements = 1 + sum((d - 1) * s for d, s in zip(dims, strides))

    def view(self, flat):
        return np.lib.stride_tricks.as_strided(flat, self.dims,
                                               [s * flat.itemsize for s in self.strides])

    def used(self):
        """Which elements of the span are the tensor's."""
        used = np.zeros(self.elements, bool)
        self.view(used)[...] = True
        return used


class RaggedLayout:
    """Batches one behind the other: batch b has its strides from offsets[b] on, up to offsets[b + 1]."""

    def __init__(self, dims, strides, offsets):
        self.dims, self.strides = tuple(dims), tuple(strides)
        self.elements = int(offsets[-1])
        places = sum(np.arange(d).reshape([-1 if a == axis else 1 for a in range(len(dims))]) * s
                     for axis, (d, s) in enumerate(zip(dims, strides)) if axis > 0)
        first = np.asarray(offsets)[:-1].reshape([-1] + [1] * (len(dims) - 1))
        end = np.asarray(offsets)[1:].reshape(first.shape)
        self.places = np.broadcast_to(first + places, dims)
        self.inside = np.broadcast_to(self.places < end, dims)

    def store(self, flat, values):
        flat[self.places[self.inside]] = values[self.inside]

    def view(self, flat):
        """A copy; 0 where there is no place."""
        values = np.zeros(self.dims, flat.dtype)
        values[self.inside] = flat[self.places[self.inside]]
        return values

    def used(self):
        used = np.zeros(self.elements, bool)
        used[self.places[self.inside]] = True
        return used


_GUARD = 256  # bytes on each side
_GUARD_BYTE = 0xA5


class HostMemory:
    """Buffers in the process's own memory, which is what Kiln's CPU device works on."""

    def __init__(self):
        self._buffers = []

    def allocate(self, payload):
        """A copy of `payload`, a uint8 array, between guards; its address."""
        size = (payload.size + 63) // 64 * 64
        raw = np.full(size + 2 * _GUARD + 64, _GUARD_BYTE, np.uint8)
        start = _GUARD + (-(raw.ctypes.data + _GUARD)) % 64
        raw[start:start + payload.size] = payload
        self._buffers.append((raw, start, payload.size))
        return raw.ctypes.data + start

    def read(self, address, size):
        for raw, start, held in self._buffers:
            if raw.ctypes.data + start == address:
                assert size <= held
                return raw[start:start + size].copy()
        raise KeyError(address)

    def damage(self):
        """Sentences about guards that were overwritten."""
        found = []
        for i, (raw, start, size) in enumerate(self._buffers):
            if (raw[:start] != _GUARD_BYTE).any():
                found.append(f"written before buffer {i} of {size} bytes")
            if (raw[start + size:] != _GUARD_BYTE).any():
                found.append(f"written behind buffer {i} of {size} bytes")
        return found

    def synchronize(self):
        pass


class EmulatedMemory:
    """The same of tests/support/emulated_gpu: memory of its driver, whose addresses are the process's own."""

    def __init__(self, libcuda):
        self._driver = ctypes.CDLL(libcuda)
        self._buffers = []

    def allocate(self, payload):
        address = ctypes.c_uint64()
        size = (payload.size + 63) // 64 * 64 + 2 * _GUARD
        if self._driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) != 0:
            raise MemoryError(f"{size} bytes")
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address.value))
        raw[:] = _GUARD_BYTE
        raw[_GUARD:_GUARD + payload.size] = payload
        self._buffers.append((address, raw, payload.size))
        return address.value + _GUARD

    def read(self, address, size):
        for start, raw, held in self._buffers:
            if start.value + _GUARD == address:
                assert size <= held
                return raw[_GUARD:_GUARD + size].copy()
        raise KeyError(address)

    def damage(self):
        return [f"written beside buffer {i} of {size} bytes" for i, (_, raw, size) in enumerate(self._buffers)
                if (raw[:_GUARD] != _GUARD_BYTE).any() or (raw[_GUARD + size:] != _GUARD_BYTE).any()]

    def synchronize(self):
        pass

    def free(self):
        for address, _, _ in self._buffers:
            self._driver.cuMemFree_v2(address)
        self._buffers = []


class TorchMemory:
    """The same on the current GPU, through PyTorch."""

    def __init__(self):
        import torch

        self._torch = torch
        self._buffers = []

    def allocate(self, payload):
        torch = self._torch
        size = (payload.size + 255) // 256 * 256
        raw = np.full(size + 2 * _GUARD, _GUARD_BYTE, np.uint8)
        raw[_GUARD:_GUARD + payload.size] = payload
        tensor = torch.from_numpy(raw).cuda()
        self._buffers.append((tensor, payload.size))
        return tensor.data_ptr() + _GUARD

    def read(self, address, size):
        for tensor, held in self._buffers:
            if tensor.data_ptr() + _GUARD == address:
                assert size <= held
                return tensor[_GUARD:_GUARD + size].cpu().numpy()
        raise KeyError(address)

    def damage(self):
        found = []
        for i, (tensor, size) in enumerate(self._buffers):
            raw = tensor.cpu().numpy()
            if (raw[:_GUARD] != _GUARD_BYTE).any() or (raw[_GUARD + size:] != _GUARD_BYTE).any():
                found.append(f"written beside buffer {i} of {size} bytes")
        return found

    def synchronize(self):
        self._torch.cuda.synchronize()
