"""Our own mutator: a valid file with a few things wrong, and hypothesis' edits of the same kinds."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

LONGEST = 6_000  # bytes of a case: most faults need few, and small cases are quick
TOKENS = [
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x28", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\xe2\x80\xa8"),
    *(b"\r", b"\n", b"\r\n", b"\t", b'"', b'""', b"'", b"\\", b",", b";", b"|", b" ", b"#", b"=", b"\x85", b"\x0c"),
    *(b"nan", b"NaN", b"inf", b"-inf", b"1e308", b"-1e308", b"1e999", b"1e-400", b"0x1p3", b"1_000", b"+1", b"-0.0"),
    *(b"9223372036854775808", b"-9223372036854775809", b"1" * 400, b"0." + b"0" * 330 + b"1", b".", b"-", b"e5", b"1e"),
    *(b"null", b"None", b"true", b"[]", b"{}", b"[[[[", b"}}}}", b"((((", b"<", b">", b"&", b"&#0;", b"&a;", b"<!--"),
    *(b"../../etc/passwd", b"/etc/passwd", b"C:\\x", b"=cmd|'/c calc'!A1", b"@SUM(1)", b"%s%n", b"${x}", b"\x1b[2J"),
    *(b"<<", b">>", b"{|", b"|}", b"_:b", b"@prefix", b"^^", b"->", b"!", b": 0.5", b"]]>", b"<![CDATA[", b"\xf4\x90"),
]  # fmt: skip
NUMBERS = [
    *(b"0", b"-1", b"1", b"2", b"255", b"256", b"65536", b"2147483647", b"2147483648", b"4294967296", b"1e400", b"nan"),
    *(b"9223372036854775807", b"18446744073709551616", b"-0", b"0.0000001", b"1e-320", b"99999999999999999999999999"),
]  # fmt: skip
BYTES = [0, 1, 0x09, 0x0A, 0x0D, 0x20, 0x22, 0x2C, 0x7F, 0x80, 0xC0, 0xFE, 0xFF]
DIGITS = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")


class Mutator:
    """Cases from `seeds`, the same ones for the same `seed`."""

    def __init__(self, seeds: Sequence[bytes], seed: object) -> None:
        self.seeds, self.random = list(seeds), random.Random(str(seed))

    def case(self) -> bytes:
        data = self.random.choice(self.seeds)
        for _ in range(min(1 + int(self.random.expovariate(0.6)), 12)):
            data = self.edit(data)
        return data[:LONGEST]

    def edit(self, data: bytes) -> bytes:
        """One thing wrong."""
        pick = self.random
        at = pick.randrange(len(data) + 1)
        end = min(len(data), at + 1 + int(pick.expovariate(0.1)))
        kind = pick.randrange(12)
        if kind == 0 and at < len(data):
            return data[:at] + bytes([data[at] ^ (1 << pick.randrange(8))]) + data[at + 1 :]
        if kind == 1 and at < len(data):
            return data[:at] + bytes([pick.choice(BYTES)]) + data[at + 1 :]
        if kind == 2:
            return data[:at] + data[end:]
        if kind == 3:
            return data[:end] + data[at:end] + data[end:]
        if kind in (4, 5):
            return data[:at] + pick.choice(TOKENS) + data[at if kind == 4 else end :]
        if kind == 6:
            return data[:at]
        if kind == 7:
            return data[:at] + pick.randbytes(pick.randrange(1, 9)) + data[end:]
        if kind == 8:
            other = pick.choice(self.seeds)
            start = pick.randrange(len(other) + 1)
            return data[:at] + other[start : start + pick.randrange(1, 200)] + data[at:]
        if kind in (9, 10):
            found = list(DIGITS.finditer(data))
            if found:
                one = pick.choice(found)
                return data[: one.start()] + pick.choice(NUMBERS) + data[one.end() :]
        if kind == 11:
            return (
                data[:at]
                + pick.choice([b"[", b"(", b"{", b"<a>", b"a,", b"\n", b'"', b"[a]\n"]) * pick.randrange(2, 1500)
                + data[at:]
            )
        return data[::-1] if pick.random() < 0.02 else data
