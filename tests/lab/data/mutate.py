"""Random damage to the content of a file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import re
import zipfile
from collections.abc import Callable

#: A change of some bytes.
Mutation = Callable[[bytes, random.Random], bytes]

NUMBER = re.compile(rb"-?\d+(?:[.,]\d+)?(?:e[-+]?\d+)?")
LIES = [b"inf", b"-inf", b"nan", b"1e300", b"-1e300", b"1e5000", b"", b"?", b"0x10", b"1_0", b"x"]
HUGE = [2**31 - 1, 2**32 - 1, 2**48, 2**63 - 1, 2**64 - 1, 0]


def truncate(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.randrange(len(raw) + 1)]


def flip_bits(raw: bytes, draw: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(draw.choice([1, 1, 1, 3, 10])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut_out(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(raw))
    return raw[:start] + raw[start + draw.choice([1, 2, 8, 100, 1000]) :]


def insert(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(raw))
    return raw[:start] + draw.randbytes(draw.choice([1, 2, 8, 100])) + raw[start:]


def repeat(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(raw))
    return raw[:start] + raw[start : start + draw.choice([1, 8, 100, 1000])] + raw[start:]


def huge_number(raw: bytes, draw: random.Random) -> bytes:
    """A large integer somewhere in the header, where dimensions and lengths are."""
    size = draw.choice([1, 2, 4, 8])
    start = draw.randrange(min(len(raw), draw.choice([16, 128, 1024])))
    number = draw.choice(HUGE) % 2 ** (8 * size)
    return raw[:start] + number.to_bytes(size, draw.choice(["big", "little"])) + raw[start + size :]


def false_number(raw: bytes, draw: random.Random) -> bytes:
    """Another word where a text has a number."""
    numbers = list(NUMBER.finditer(raw))
    if not numbers:
        return flip_bits(raw, draw)
    found = draw.choice(numbers)
    return raw[: found.start()] + draw.choice(LIES) + raw[found.end() :]


def move_number(raw: bytes, draw: random.Random) -> bytes:
    """A number taken from one place and put in another: the total count stays right."""
    numbers = list(NUMBER.finditer(raw))
    if len(numbers) < 2:
        return flip_bits(raw, draw)
    a, b = sorted(draw.sample(numbers, 2), key=lambda found: found.start())
    moved = raw[: a.start()] + raw[a.end() : b.end()]
    return moved + raw[b.end() : b.end() + 1] + a.group() + raw[b.end() :]


MUTATIONS: list[Mutation] = [
    truncate,
    flip_bits,
    cut_out,
    insert,
    repeat,
    huge_number,
    false_number,
    move_number,
    lambda raw, draw: b"",
]


def mutate(raw: bytes, draw: random.Random) -> bytes:
    """Damage a file, or what is compressed in it, in one random way."""
    change = draw.choice(MUTATIONS)
    if raw[:2] == b"\x1f\x8b" and draw.random() < 0.5:
        return gzip.compress(change(gzip.decompress(raw), draw), compresslevel=1)
    return change(raw, draw)


def recompress(raw: bytes, draw: random.Random) -> bytes:
    """Damage an archive, or give it another compression method, or both."""
    if raw[:2] == b"PK" and draw.random() < 0.5:
        method = draw.choice([zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_STORED])
        sink = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(sink, "w", method) as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
        raw = sink.getvalue()
    elif raw[:2] == b"\x1f\x8b" and draw.random() < 0.3:
        raw = draw.choice([bz2.compress, lzma.compress])(gzip.decompress(raw))
    return mutate(raw, draw)
