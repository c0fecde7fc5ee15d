"""pulse's random numbers, implemented again: functions of (seed, stream, index), as in <pulse/train/random.hpp>."""

import numpy

ORDER, TIMESTEPS, NOISE, SAMPLE_START, POSTERIOR, BUCKET = 2, 4, 5, 6, 13, 15
LOW = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011)."""
    a, b, c, d = counter
    k, l = key
    for _ in range(10):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (y >> 32) ^ b ^ k, y & LOW, (x >> 32) ^ d ^ l, x & LOW
        k, l = (k + 0x9E3779B9) & LOW, (l + 0xBB67AE85) & LOW
    return a, b, c, d


def block(seed, stream, counter):
    return philox((counter & LOW, counter >> 32, stream, 0), (seed & LOW, seed >> 32))


def bits(seed, stream, index):
    words = block(seed, stream, index // 2)
    return words[index % 2 * 2 + 1] << 32 | words[index % 2 * 2]


def below(seed, stream, count, index):
    return bits(seed, stream, index) * count >> 64


def normals(seed, stream, first, count):
    """`count` normal numbers starting at index `first`, where a block of four begins."""
    assert first % 4 == 0 and count % 4 == 0
    words = numpy.array([block(seed, stream, first // 4 + i) for i in range(count // 4)], dtype=numpy.float64)
    radius = numpy.sqrt(-2 * numpy.log((words[:, 0::2] + 0.5) * 2.0**-32)).astype(numpy.float32)
    angle = (2 * numpy.pi * 2.0**-32 * words[:, 1::2]).astype(numpy.float32)
    return numpy.stack((radius * numpy.cos(angle), radius * numpy.sin(angle)), axis=2).reshape(-1)


def index_at(seed, position, count):
    """Which of `count` samples is at a position; each epoch has its own order."""
    epoch, value = divmod(position, count)
    half = 1
    while half != 16 and 1 << (2 * half) < count:
        half += 1
    mask = (1 << half) - 1
    while True:
        left, right = value >> half, value & mask
        for turn in range(6):
            word = philox((right, turn, epoch & LOW, ORDER ^ (epoch >> 32 << 8)), (seed & LOW, seed >> 32))[0]
            left, right = right, left ^ (word & mask)
        value = left << half | right
        if value < count:
            return value


def of_bucket_at(seed, position, samples, buckets):
    """The bucket of a position's step, and the picture at that position; `buckets` are lists of pictures, and a step
    has `samples` of them."""
    steps = [(bucket, first) for bucket, of in enumerate(buckets) for first in range(0, len(of), samples)]
    step, sample = divmod(position, samples)
    bucket, first = steps[index_at(seed, step, len(steps))]
    count = len(buckets[bucket])
    epoch = step // len(steps)
    index = index_at(bits(seed, BUCKET, bucket), epoch * count + (first + sample) % count, count)
    return bucket, buckets[bucket][index]
