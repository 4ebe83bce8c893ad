"""A web server's log, made up."""

import random


def access_log(count: int, seed: int) -> list[bytes]:
    """Lines as web servers write them, some of which are not what anybody expects."""
    draw = random.Random(seed)
    lines = []
    for number in range(count):
        path = "/" + "/".join(f"{draw.getrandbits(24):x}" for _ in range(draw.randint(1, 6)))
        agent = draw.choice(
            ['Mozilla/5.0 "quoted"', "-", "\\x16\\x03\\x01", "Ünïcode/1", "a" * 900]
        )
        line = (
            f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255} - -"
            f" [{1 + number % 28:02}/Jan/2026:10:00:00 +0100]"
            f' "GET {path}?n={number} HTTP/1.1" {draw.choice([200, 304, 404, 500])}'
            f' {draw.randint(0, 1 << 20)} "-" "{agent}"'
        ).encode()
        lines.append(line + draw.choice([b"", b"", b"\r\r ", b" \xff\xfe", b"\0", b"\t "]))
    return lines
