"""Small readers and writers of pulse_train's input and output files; they share no code with pulse."""

import gzip
import json
import random
import struct
import zlib


def idx_bytes(count=256, rows=28, columns=28, magic=0x803, seed=1):
    """An IDX file of blobs of one brightness on black, so that there is something to learn."""
    source = random.Random(seed)
    pixels = bytearray()
    for _ in range(count):
        bright, low, high = source.randrange(64, 256), source.randrange(rows // 2), source.randrange(rows // 2, rows)
        for row in range(rows):
            inside = low <= row < high
            pixels += bytes(bright if inside and low <= column < high else 0 for column in range(columns))
    return struct.pack(">IIII", magic, count, rows, columns) + bytes(pixels)


def write_images(folder, content, packed=False, name="train-images-idx3-ubyte"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (name + ".gz" if packed else name)).write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return folder


class Safetensors:
    """Tensors of a safetensors file as bytes, and its metadata; raises ValueError if anything is wrong with it."""

    def __init__(self, path):
        content = path.read_bytes()
        (header_bytes,) = struct.unpack_from("<Q", content)
        if 8 + header_bytes > len(content):
            raise ValueError("the header is cut")
        header = json.loads(content[8:8 + header_bytes])
        self.metadata = header.pop("__metadata__", {})
        data = content[8 + header_bytes:]
        self.shapes, self.tensors, spans = {}, {}, []
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            elements = 1
            for extent in entry["shape"]:
                elements *= extent
            size = {"F32": 4, "U8": 1}.get(entry["dtype"], 0)
            if size == 0 or end - begin != size * elements:
                raise ValueError(f"{name}: {entry}")
            spans.append((begin, end))
            self.shapes[name] = entry["shape"]
            self.tensors[name] = data[begin:end]
        at = 0
        for begin, end in sorted(spans):
            if begin != at:
                raise ValueError("the tensors leave a hole or overlap")
            at = end
        if at != len(data):
            raise ValueError("the data do not end with the last tensor")


class Checkpoint:
    """A checkpoint's folder, assembled from its manifest; raises ValueError if anything is wrong with it."""

    def __init__(self, folder):
        self.manifest = json.loads((folder / "manifest.json").read_text())
        fields = {key: value for key, value in self.manifest.items() if key != "crc32"}
        plain = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        if self.manifest["format"] != "pulse-checkpoint/2" or zlib.crc32(plain) != self.manifest["crc32"]:
            raise ValueError("the manifest is not what it says")
        contents = [(folder / entry["name"]).read_bytes() for entry in self.manifest["files"]]
        if [len(content) for content in contents] != [entry["bytes"] for entry in self.manifest["files"]]:
            raise ValueError("sizes of files")
        self.shapes, self.tensors = {}, {}
        for entry in self.manifest["tensors"]:
            data = b""
            for piece in entry["pieces"]:
                begin = piece["offset"]
                part = contents[piece["file"]][begin:begin + 4 * piece["elements"]]
                if len(data) != 4 * piece["first"] or zlib.crc32(part) != piece["crc32"]:
                    raise ValueError(f"{entry['name']}: {piece}")
                data += part
            self.shapes[entry["name"]] = entry["shape"]
            self.tensors[entry["name"]] = data


def last_checkpoint(folder):
    """The complete checkpoint that was written last."""
    complete = [path.parent for path in folder.glob("step-*/manifest.json")]
    return max(complete, key=lambda path: json.loads((path / "manifest.json").read_text())["sequence"])


def write_png(path, width, pixels):
    """Writes rows of `width` pixels of three bytes each."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = [b"\0" + pixels[at:at + 3 * width] for at in range(0, len(pixels), 3 * width)]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, len(rows), 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b""))


def png_bytes(path):
    """The pixels, with each row's filter byte in front; pulse filters no row."""
    content, packed, at = path.read_bytes(), b"", 8
    while at < len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        packed += content[at + 8:at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    return zlib.decompress(packed)


def png_size(path):
    """(width, height) of a PNG file; checks the checksums of all chunks and that the data unpack to whole rows."""
    content = path.read_bytes()
    if content[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("no PNG signature")
    at, kinds, packed = 8, [], b""
    while at < len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        body = content[at + 8:at + 8 + length]
        (checksum,) = struct.unpack_from(">I", content, at + 8 + length)
        if zlib.crc32(kind + body) != checksum:
            raise ValueError(f"checksum of {kind}")
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", body)
        if kind == b"IDAT":
            packed += body
        kinds.append(kind)
        at += 12 + length
    if kinds[0] != b"IHDR" or kinds[-1] != b"IEND":
        raise ValueError(f"chunks {kinds}")
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    if len(zlib.decompress(packed)) != height * (1 + width * channels * depth // 8):
        raise ValueError("rows are missing")
    return width, height


def serial_plan(model, placement, devices, waves, last_layers, microbatches, microbatch_size):
    """A pulse-plan/1 that is valid but slow: one pass at a time, all forward and then all backward."""
    total = len(last_layers)

    def device_of(stage):
        if placement != "folded":
            return stage % devices
        round_trip = stage % (2 * devices)
        return round_trip if round_trip < devices else 2 * devices - 1 - round_trip

    passes = [("F", s, m) for m in range(microbatches) for s in range(total)]
    passes += [("B", s, m) for m in range(microbatches) for s in reversed(range(total))]
    schedule = [[] for _ in range(devices)]
    for at, (op, stage, microbatch) in enumerate(passes):
        schedule[device_of(stage)].append(
            {"op": op, "stage": stage, "microbatch": microbatch, "start_us": at, "end_us": at + 1})
    first_layers = [0] + [last + 1 for last in last_layers[:-1]]
    return {
        "format": "pulse-plan/1", "model": model, "placement": placement, "pipeline_degree": devices, "data_degree": 1,
        "waves": waves, "microbatches": microbatches, "microbatch_size": microbatch_size, "split_backward": False,
        "stages": [{"index": s, "device": device_of(s), "first_layer": first_layers[s], "last_layer": last_layers[s]}
                   for s in range(total)],
        "schedule": schedule,
        "predicted": {"step_us": len(passes), "lower_bound_us": 0, "bubble_ratio": 0, "samples_per_s": 0,
                      "peak_memory_bytes": [], "boundary_bytes": 0, "skip_bytes": 0},
    }


def write_cluster(path):
    """Made-up links of a machine, for runs that are not about links."""
    path.write_text(json.dumps({"format": "pulse-cluster/1", "nodes": 1, "devices_per_node": 64,
                                "memory_bytes": 1 << 36, "intra_node": {"bandwidth_gb_per_s": 5, "latency_us": 20},
                                "inter_node": {"bandwidth_gb_per_s": 1, "latency_us": 50}}))
    return path
