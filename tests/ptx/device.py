"""A device that interprets kernels from their PTX when a library's host code launches them."""

import ctypes
import struct

import numpy as np

from ptx import Fault, Machine, kernels_of

FAT_BINARY = struct.pack("<I", 0xBA55ED50)
PTX, CUBIN = 1, 2
RUNS = 80  # the architecture that is interpreted, of those that have PTX


def images_in(path):
    """Yields (kind, architecture, bytes) of every uncompressed image that nvcc has put into a file."""
    with open(path, "rb") as file:
        data = file.read()
    at = data.find(FAT_BINARY)
    while at >= 0:
        header, size = struct.unpack_from("<HQ", data, at + 6)
        end = at + header + size
        at += header
        while at < end:
            kind, header, size, packed = struct.unpack_from("<HxxIQI", data, at)
            if packed:
                raise Fault(f"{path}: an image is compressed")
            (architecture,) = struct.unpack_from("<I", data, at + 28)
            yield kind, architecture, data[at + header : at + header + size]
            at += header + size
        at = data.find(FAT_BINARY, end)


class Memory:
    """Global memory: allocations with a gap after each. All bits are set initially, which is a NaN."""

    def __init__(self, size):
        raw = np.full(size + 256, 0xFF, np.uint8)
        start = -raw.ctypes.data % 256
        self.bytes = raw[start : start + size]
        self.first = self.bytes.ctypes.data
        self.allocated = np.zeros(size, bool)
        self.end = 0

    def allocate(self, count, kind):
        """Allocates an array, aligned to 256 bytes."""
        size = count * np.dtype(kind).itemsize
        place = slice(self.end, self.end + size)
        self.allocated[place] = True
        self.end += -(-(size + 256) // 256) * 256
        if self.end > len(self.bytes):
            raise MemoryError("the device's memory is full")
        return self.bytes[place].view(kind)

    def put(self, values):
        """Copies the values into a new array."""
        array = self.allocate(values.size, values.dtype).reshape(values.shape)
        array[...] = values
        return array


class Queue(ctypes.Structure):
    _fields_ = [("stream", ctypes.c_void_p), ("multiprocessors", ctypes.c_int), ("scratch", ctypes.c_void_p)]


class Device:
    """Calls functions of a library: arrays of `memory` are passed as pointers, ctypes' structures by reference."""

    def __init__(self, library, multiprocessors=4, memory_bytes=1 << 25, most_lanes=4096):
        self.memory = Memory(memory_bytes)
        self.kernels = {}
        for kind, architecture, image in images_in(library):
            if kind == PTX and architecture == RUNS:
                self.kernels.update(kernels_of(image.decode().rstrip("\0")))
        self.multiprocessors = multiprocessors
        self.most_lanes = most_lanes
        self.fault = None
        self.launched = set()
        self.library = ctypes.CDLL(library)
        launcher = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint),
                                    ctypes.POINTER(ctypes.c_uint), ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p))
        self.launcher = launcher(self.launch)
        self.library.launch_with(self.launcher)

    def launch(self, name, grid, block, shared_bytes, parameters):
        if self.fault:
            return
        try:
            self.run(self.kernels[name.decode()], grid[:3], block[:3], shared_bytes, parameters)
        except Exception as fault:  # raised again by call()
            self.fault = fault

    def run(self, kernel, grid, block, shared_bytes, addresses):
        self.launched.add(kernel.name)
        parameters = np.zeros(sum(kernel.parameters[-1]), np.uint8)
        for (first, size), address in zip(kernel.parameters, addresses[: len(kernel.parameters)]):
            parameters[first : first + size] = np.frombuffer(ctypes.string_at(address, size), np.uint8)
        blocks = grid[0] * grid[1] * grid[2]
        together = max(1, self.most_lanes // (block[0] * block[1] * block[2]))
        for first in range(0, blocks, together):
            Machine(kernel, grid, block, first, min(together, blocks - first), shared_bytes, parameters,
                    self.memory).run()

    def queue(self, scratch_bytes=0):
        scratch = self.memory.allocate(scratch_bytes, np.uint8) if scratch_bytes else None
        return Queue(None, self.multiprocessors, scratch.ctypes.data if scratch_bytes else None)

    def call(self, function, *arguments):
        """Calls a function of the library that launches kernels, and raises their faults."""
        function = getattr(self.library, function)
        function.restype = ctypes.c_size_t
        result = function(*[
            ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray)
            else ctypes.byref(a) if isinstance(a, ctypes.Structure)
            else ctypes.c_void_p(a) if a is None else a for a in arguments])
        if self.fault:
            fault, self.fault = self.fault, None
            raise fault
        return result
