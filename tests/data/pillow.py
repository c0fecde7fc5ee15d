"""What Pillow makes of pictures, for the tests of pulse/data to compare.

    pillow.py decode <folder>    writes pictures in many forms, and beside each its pixels as PPM
    pillow.py resize <folder>    resizes a.png to the sizes of sizes.txt: width height left top crop_width crop_height
"""

import random
import sys

from PIL import Image, ImageOps


def picture(width, height, mode="RGB"):
    draw = random.Random(width * 1000 + height)
    image = Image.new("RGB", (width, height))
    image.putdata([(x * 200 // width + draw.randrange(30), y * 200 // height + draw.randrange(30), draw.randrange(256))
                   for y in range(height) for x in range(width)])
    return image.convert(mode)


def decode(folder):
    def keep(name, **options):
        image.save(f"{folder}/{name}", **options)
        seen = ImageOps.exif_transpose(Image.open(f"{folder}/{name}"))
        if seen.mode in ("RGBA", "LA", "PA", "P"):
            seen = seen.convert("RGBA")
            white = Image.new("RGBA", seen.size, (255, 255, 255, 255))
            seen = Image.alpha_composite(white, seen)
        seen.convert("RGB").save(f"{folder}/{name}.ppm")

    for mode in ("RGB", "L", "CMYK"):
        image = picture(53, 37, mode)
        for progressive in (False, True):
            for subsampling in (0, 2):
                keep(f"{mode}_{progressive}_{subsampling}.jpg", quality=80, progressive=progressive, subsampling=subsampling)
    for mode in ("RGB", "L", "1", "P", "RGBA", "LA"):
        image = picture(41, 29, "RGB" if mode in ("RGBA", "LA") else mode)
        if mode in ("RGBA", "LA"):
            image = image.convert(mode)
            image.putalpha(picture(41, 29, "L"))
        keep(f"{mode}.png")
        if mode in ("RGB", "RGBA"):
            keep(f"{mode}_lossless.webp", lossless=True)
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


{"decode": decode, "resize": resize}[sys.argv[1]](sys.argv[2])
