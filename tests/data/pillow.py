"""Pictures processed by Pillow, for comparison by the tests of pulse/data.

    pillow.py decode <folder>    writes pictures in many forms, and beside each its pixels as PPM
    pillow.py damage <folder>    writes damaged GIF, BMP and WebP, and beside those that Pillow reads the pixels as PPM
    pillow.py read <folder>      writes beside each picture that Pillow reads its pixels as PPM
    pillow.py seeds <folder>     writes small pictures of some forms, from which the fuzz test begins
    pillow.py resize <folder>    resizes a.png to the sizes of sizes.txt: width height left top crop_width crop_height
"""

import io
import pathlib
import random
import struct
import sys
import warnings

import PIL
from PIL import Image, ImageOps, PngImagePlugin

NEW = int(PIL.__version__.split(".")[0]) >= 12  # this Pillow finds XMP in JPEG and WebP, and reads more kinds of BMP


def picture(width, height, mode="RGB"):
    draw = random.Random(width * 1000 + height)
    image = Image.new("RGB", (width, height))
    image.putdata([(x * 200 // width + draw.randrange(30), y * 200 // height + draw.randrange(30), draw.randrange(256))
                   for y in range(height) for x in range(width)])
    return image.convert(mode)


def see(path):
    seen = ImageOps.exif_transpose(Image.open(path))
    if seen.mode in ("RGBA", "LA", "PA", "P") or "transparency" in seen.info:
        seen = seen.convert("RGBA")
        white = Image.new("RGBA", seen.size, (255, 255, 255, 255))
        seen = Image.alpha_composite(white, seen)
    seen.convert("RGB").save(f"{path}.ppm")


def samples(width, height, most):
    draw = random.Random(width * height)
    # Runs of all lengths, and noise.
    line = []
    while len(line) < width * height:
        line += [draw.randrange(most)] * draw.choice((1, 1, 1, 2, 3, 9, 40))
    return line[:width * height]


def colours(count):
    draw = random.Random(count)
    return [[draw.randrange(256) for _ in range(3)] for _ in range(count)]


def packed(line, bits, lowest_first):
    """Packs numbers of the given bit sizes into bytes."""
    held = count = 0
    out = bytearray()
    for number, size in zip(line, bits):
        held = held | number << count if lowest_first else held << size | number
        count += size
        while count >= 8:
            out.append(held & 255 if lowest_first else held >> count - 8)
            held = held >> 8 if lowest_first else held & (1 << count - 8) - 1
            count -= 8
    if count:
        out.append(held & 255 if lowest_first else held << 8 - count & 255)
    return bytes(out)


def lzw(line, bits):
    clear, codes, sizes = 1 << bits, [1 << bits], [bits + 1]
    strings, size, text = {(i,): i for i in range(clear)}, bits + 1, ()
    for number in line:
        if text + (number,) in strings:
            text += (number,)
            continue
        codes.append(strings[text])
        sizes.append(size)
        strings[text + (number,)] = len(strings) + 2
        if len(strings) + 1 == 1 << size:
            size += 1
        text = (number,)
        if len(strings) + 2 == 4096:
            codes += [strings[text], clear]
            sizes += [min(size, 12)] * 2
            strings, size, text = {(i,): i for i in range(clear)}, bits + 1, ()
    codes += ([strings[text]] if text else []) + [clear + 1]
    sizes += [size] * (2 if text else 1)
    return packed(codes, sizes, True)


def gif(canvas, frame, bits, table=True, local=False, transparent=None, interlaced=False):
    left, top, width, height = frame
    line = samples(width, height, 1 << bits)
    if interlaced:
        order = [y for first, step in ((0, 8), (4, 8), (2, 4), (1, 2)) for y in range(first, height, step)]
        line = [line[y * width + x] for y in order for x in range(width)]
    flat = lambda count: bytes(sum(colours(count), []))
    file = b"GIF89a" + struct.pack("<HHBBB", *canvas, (0x80 | bits - 1) * table, 1, 0) + flat(1 << bits) * table
    size = bits - NEW  # a colour missing from the table is black, which an older Pillow treats as grey
    file += b"!\xfe\x03abc\0"
    if transparent is not None:
        file += b"!\xf9\x04" + struct.pack("<BHBB", 1, 0, transparent, 0)
    flags = (0x80 | size - 1) * local | 0x40 * interlaced
    file += b"," + struct.pack("<HHHHB", *frame, flags) + flat(1 << size) * local
    data = lzw(line, max(bits, 2))
    blocks = [data[i:i + 100] for i in range(0, len(data), 100)]
    return file + bytes([max(bits, 2)]) + b"".join(bytes([len(one)]) + one for one in blocks) + b"\0;"


def bmp(width, height, bits, header=40, packing=0, masks=(), top_down=False, table=None, gap=0):
    count = 0 if bits > 8 else table or 1 << bits
    line = samples(width, height, min(table or 1 << bits, 1 << bits))
    rows = [line[y * width:(y + 1) * width] for y in range(height)]
    if packing in (1, 2):
        data = b"".join(map(runs if packing == 1 else runs_of_4, rows)) + b"\0\1"
    elif bits <= 8:
        data = b"".join(padded(packed(row, [bits] * width, False)) for row in rows)
    else:
        data = b"".join(padded(b"".join(one.to_bytes(bits // 8, "little") for one in row)) for row in rows)
    flat = b"".join(bytes(one[::-1]) + b"\0" * (header != 12) for one in colours(count))
    if header == 12:
        head = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        head = struct.pack("<IiiHHIIiiII", header, width, -height if top_down else height, 1, bits, packing, len(data),
                           0, 0, table or 0, 0)
        head += struct.pack(f"<{len(masks)}I", *masks)
        head += bytes(max(0, 0 if header == 40 else header - len(head)))
    offset = 14 + len(head) + len(flat) + gap
    return b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset) + head + flat + bytes(gap) + data


def padded(row):
    return row + bytes(-len(row) % 4)


def runs(row):
    """8-bit run-length encoding: equal samples as runs, others verbatim."""
    out, i = bytearray(), 0
    while i < len(row):
        equal = next((n for n in range(1, len(row) - i) if row[i + n] != row[i]), len(row) - i)
        if equal == 1 and len(row) - i >= 3:
            some = row[i:i + 5]
            out += bytes([0, len(some), *some]) + bytes(len(some) % 2)
            i += len(some)
        else:
            equal = min(equal, 255)
            out += bytes([equal, row[i]])
            i += equal
    return bytes(out) + b"\0\0"


def runs_of_4(row):
    """4-bit runs of alternating pairs, the last past the end of its row, or an even number of verbatim samples."""
    out, i = bytearray(), 0
    while i < len(row):
        if i % 3 == 0 and len(row) - i >= 4:
            out += bytes([0, 4, row[i] << 4 | row[i + 1], row[i + 2] << 4 | row[i + 3]])
            i += 4
        else:
            other = row[i + 1] if i + 1 < len(row) else 0
            out += bytes([2, row[i] << 4 | other])
            i += 2
    return bytes(out) + b"\0\0"


def animated(canvas, frame, alpha):
    """An animated WebP whose first frame covers part of its canvas."""
    def of(kind, data):
        return kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)

    def number(value):
        return struct.pack("<I", value)[:3]

    left, top, width, height = frame
    file = io.BytesIO()
    image = picture(width, height)
    if alpha:
        image.putalpha(picture(width, height, "L"))
    image.save(file, "WEBP", lossless=True, exact=True)
    one = file.getvalue()[12:]
    one = one[one.index(b"VP8L"):]
    place = b"".join(map(number, (left // 2, top // 2, width - 1, height - 1, 40)))
    moves = [of(b"ANMF", place + b"\0" + one)]
    body = of(b"VP8X", bytes([2 | 16 * alpha, 0, 0, 0]) + number(canvas[0] - 1) + number(canvas[1] - 1))
    body += of(b"ANIM", b"\x10\x20\x30\xff\0\0") + b"".join(moves * 2)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def exif_of(orientation, wide):
    value = struct.pack(">I", orientation) if wide else struct.pack(">HH", orientation, 0)
    return b"MM\0*\0\0\0\x08\0\1" + struct.pack(">HHI", 0x0112, 4 if wide else 3, 1) + value + bytes(4)


def xmp_of(orientation, element):
    inner = f"><tiff:Orientation>{orientation}</tiff:Orientation>" if element else f' tiff:Orientation="{orientation}">'
    return (f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
            f'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/"{inner}</rdf:Description>'
            f"</rdf:RDF></x:xmpmeta>")


def raw_profile(exif):
    data = b"Exif\0\0" + exif
    digits = data.hex()
    return f"\nexif\n{len(data):8}\n" + "\n".join(digits[i:i + 72] for i in range(0, len(digits), 72)) + "\n"


def in_jpeg(kind, data):
    file = io.BytesIO()
    picture(24, 17).save(file, "JPEG")
    segment = kind + data
    return b"\xff\xd8\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + file.getvalue()[2:]


def in_png(**texts):
    """A PNG with EXIF data and texts, compressed or not, by the names of their kinds."""
    info = PngImagePlugin.PngInfo()
    for name, (text, zipped) in texts.items():
        if name == "xmp":
            info.add_itxt("XML:com.adobe.xmp", text, zip=zipped)
        if name == "profile":
            info.add_text("Raw profile type exif", text, zip=zipped)
        if name == "exif":
            info.add(b"eXIf", text)
    file = io.BytesIO()
    picture(24, 17).save(file, "PNG", pnginfo=info)
    return file.getvalue()


def turned():
    """Pictures with their orientation in every possible place, and in two places that differ."""
    http = b"http://ns.adobe.com/xap/1.0/\0"
    for orientation in range(1, 9):
        yield f"long_{orientation}.jpg", in_jpeg(b"Exif\0\0", exif_of(orientation, True))
        for other in (False, True):
            xmp = xmp_of(orientation, other)
            profile = raw_profile(exif_of(orientation, other))
            yield f"xmp_{other}_{orientation}.png", in_png(xmp=(xmp, other))
            yield f"profile_{other}_{orientation}.png", in_png(profile=(profile, other))
            if NEW:
                yield f"xmp_{other}_{orientation}.jpg", in_jpeg(http, xmp.encode())
                file = io.BytesIO()
                picture(24, 17).save(file, "WEBP", lossless=True, xmp=xmp.encode())
                yield f"xmp_lossless_{other}_{orientation}.webp", file.getvalue()
    exif, xmp, profile = exif_of(6, True), xmp_of(3, False), raw_profile(exif_of(8, False))
    yield "exif_before_xmp.png", in_png(exif=(exif, False), xmp=(xmp, False))
    yield "exif_before_profile.png", in_png(exif=(exif, False), profile=(profile, False))
    yield "profile_before_xmp.png", in_png(profile=(profile, False), xmp=(xmp, False))
    yield "wrong_exif_before_xmp.png", in_png(exif=(exif_of(9, True), False), xmp=(xmp, False))
    yield "wrong_xmp.png", in_png(xmp=(xmp_of(9, False), False))


def odd():
    """Kinds of GIF, BMP and WebP that Pillow does not write."""
    for bits in range(1, 9):
        for interlaced in (False, True):
            yield f"whole_{bits}_{interlaced}.gif", gif((41, 29), (0, 0, 41, 29), bits, interlaced=interlaced)
        yield f"part_{bits}.gif", gif((41, 29), (5, 3, 20, 11), bits)
        yield f"part_transparent_{bits}.gif", gif((41, 29), (5, 3, 20, 11), bits, transparent=1)
        yield f"larger_{bits}.gif", gif((10, 10), (5, 3, 20, 11), bits, transparent=0, interlaced=True)
        if bits > 1:
            yield f"local_{bits}.gif", gif((41, 29), (0, 0, 41, 29), bits, local=True)
            yield f"local_alone_{bits}.gif", gif((30, 20), (1, 2, 29, 18), bits, table=False, local=True, transparent=3)
        yield f"no_table_{bits}.gif", gif((30, 20), (1, 2, 29, 18), bits, table=False)
    yield "many_codes.gif", gif((300, 200), (0, 0, 300, 200), 8)
    for bits in (1, 4, 8, 16, 24, 32):
        for width in (1, 7, 32, 41):
            for top_down in (False, True):
                yield f"{bits}_{width}_{top_down}.bmp", bmp(width, 13, bits, top_down=top_down)
            yield f"os2_{bits}_{width}.bmp", bmp(width, 13, bits, header=12)
        for header in (64, 108, 124) + (52, 56) * NEW:
            yield f"{bits}_header_{header}.bmp", bmp(19, 13, bits, header=header, gap=6)
    yield "few_4.bmp", bmp(19, 13, 4, table=5)
    yield "few_8.bmp", bmp(19, 13, 8, table=100)
    for width in (4, 30, 41, 300):
        yield f"runs_8_{width}.bmp", bmp(width, 23, 8, packing=1)
        yield f"runs_4_{width}.bmp", bmp(width, 23, 4, packing=2)
    for masks in ((0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F)):
        yield f"masks_16_{masks[0]}.bmp", bmp(19, 13, 16, packing=3, masks=masks)
        yield f"masks_16_{masks[0]}_108.bmp", bmp(19, 13, 16, header=108, packing=3, masks=masks)
    yield "masks_24.bmp", bmp(19, 13, 24, packing=3, masks=(0xFF0000, 0xFF00, 0xFF))
    for masks in ((0xFF0000, 0xFF00, 0xFF, 0), (0xFF000000, 0xFF0000, 0xFF00, 0)):
        yield f"masks_32_{masks[0]}.bmp", bmp(19, 13, 32, packing=3, masks=masks[:3])
    for masks in ((0xFF, 0xFF00, 0xFF0000, 0xFF000000), (0xFF0000, 0xFF00, 0xFF, 0xFF000000), (0, 0, 0, 0)):
        yield f"alpha_32_{masks[0]}.bmp", bmp(19, 13, 32, header=124, packing=3, masks=masks)
    for alpha in (False, True):
        yield f"moving_lossless_{alpha}.webp", animated((41, 29), (0, 0, 41, 29), alpha)
        yield f"moving_lossless_part_{alpha}.webp", animated((41, 29), (6, 4, 20, 11), alpha)


def seeds(folder):
    wanted = ("part_transparent_2.gif", "local_4.gif", "larger_3.gif", "4_7_False.bmp", "runs_8_4.bmp", "runs_4_4.bmp",
              "os2_1_7.bmp", "masks_16_63488.bmp", "moving_lossless_part_True.webp", "xmp_True_6.png",
              "xmp_False_6.jpg", "profile_True_6.png", "profile_False_6.png", "xmp_lossless_True_6.webp")
    for name, data in (*odd(), *turned()):
        if name in wanted:
            pathlib.Path(folder, name).write_bytes(data)


def read(folder):
    Image.MAX_IMAGE_PIXELS = 1 << 21  # twice as many pixels are refused
    warnings.simplefilter("ignore")
    for path in sorted(pathlib.Path(folder).iterdir()):
        try:
            see(path)
        except Exception:  # any exception: Pillow does not read it
            pass


def damage(folder):
    draw = random.Random(1)
    for name, data in odd():
        for number in range(3 * (len(data) < 5000)):
            changed = bytearray(data)
            if number == 0:
                del changed[draw.randrange(len(changed)):]
            for _ in range(number and draw.randrange(1, 4)):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            pathlib.Path(folder, f"{number}_{name}").write_bytes(changed)
    read(folder)


def decode(folder):
    def keep(name, **options):
        image.save(f"{folder}/{name}", **options)
        see(f"{folder}/{name}")

    for name, data in (*odd(), *turned()):
        pathlib.Path(folder, name).write_bytes(data)
        see(f"{folder}/{name}")

    for mode in ("RGB", "L", "CMYK"):
        image = picture(53, 37, mode)
        for progressive in (False, True):
            for subsampling in (0, 2):
                keep(f"{mode}_{progressive}_{subsampling}.jpg", quality=80, progressive=progressive,
                     subsampling=subsampling)
    for mode in ("RGB", "L", "1", "P", "RGBA", "LA"):
        image = picture(41, 29, "RGB" if mode in ("RGBA", "LA") else mode)
        if mode in ("RGBA", "LA"):
            image = image.convert(mode)
            image.putalpha(picture(41, 29, "L"))
        keep(f"{mode}.png")
        keep(f"{mode}.gif")
        keep(f"{mode}_frames.gif", save_all=True, append_images=[picture(41, 29)])
        if mode not in ("RGBA", "LA"):
            keep(f"{mode}.bmp")
        if mode in ("RGB", "RGBA"):
            keep(f"{mode}_lossless.webp", lossless=True)
            keep(f"{mode}_frames_lossless.webp", lossless=True, save_all=True, append_images=[picture(41, 29)])
            keep(f"{mode}.webp", quality=70)
    for orientation in range(1, 9):
        image = picture(24, 17)
        exif = Image.Exif()
        exif[0x0112] = orientation
        for ending in ("jpg", "png", "webp"):
            keep(f"turned_{orientation}.{ending}", exif=exif.tobytes())


def resize(folder):
    image = Image.open(f"{folder}/a.png")
    with open(f"{folder}/sizes.txt", encoding="ascii") as lines:
        for i, line in enumerate(lines):
            width, height, left, top, crop_width, crop_height = map(int, line.split())
            resized = image.resize((width, height), Image.Resampling.BICUBIC)
            resized.crop((left, top, left + crop_width, top + crop_height)).save(f"{folder}/{i}.ppm")


{"damage": damage, "decode": decode, "read": read, "resize": resize, "seeds": seeds}[sys.argv[1]](sys.argv[2])
