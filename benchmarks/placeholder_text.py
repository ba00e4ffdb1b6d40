"""Parallel text with numbers, addresses, variables and tags, made from text that has few of them.

    python benchmarks/placeholder_text.py SOURCE TARGET OUT_SOURCE OUT_TARGET [--seed 1] [--lines 1000]
        [--share 1.0]

Reads two files of parallel lines and writes lines with one to three placeholders each, the same on both
sides; with `--share 0.3` into three lines of ten, the others stay. Languages need not be known: placeholders
stand before, behind or around the sentence, and instead of a number that both sides have as a word (`Zwei`,
`Two`). The same seed writes the same text; texts for training and for testing should have different ones.
"""

from __future__ import annotations

import argparse
import gzip
import random
from pathlib import Path

WORDS = {
    "Zwei ": ("Two ", 2),
    "Drei ": ("Three ", 3),
    "Vier ": ("Four ", 4),
    "Fünf ": ("Five ", 5),
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def read(path: Path) -> list[str]:
    """The lines of a file, compressed or not."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def word(draw: random.Random, least: int = 2, most: int = 9) -> str:
    """Letters."""
    return "".join(draw.choices(LETTERS, k=draw.randint(least, most)))


def number(draw: random.Random) -> str:
    """A number as people write them: 7, 1.250,50, 12:30, 3/4."""
    kind = draw.randrange(5)
    whole = draw.randint(0, 10 ** draw.randint(1, 6))
    forms = (
        str(whole),
        f"{whole:,}".replace(",", "."),
        f"{draw.randint(0, 99)},{draw.randint(10, 99)}",
        f"{draw.randint(0, 23)}:{draw.randint(10, 59)}",
        f"{draw.randint(1, 9)}/{draw.randint(2, 10)}",
    )
    return forms[kind]


def address(draw: random.Random) -> str:
    """A web or mail address."""
    domain = f"{word(draw)}.{draw.choice(['de', 'com', 'org', 'co.uk'])}"
    if draw.random() < 0.4:
        return f"{word(draw)}{draw.choice(['.', '_', ''])}{word(draw)}@{domain}"
    path = "/".join(word(draw) for _ in range(draw.randint(0, 3)))
    query = f"?{word(draw)}={draw.randint(0, 9999)}&{word(draw)}={word(draw)}" if draw.random() < 0.3 else ""
    return f"https://{draw.choice(['www.', ''])}{domain}/{path}{query}"


def variable(draw: random.Random) -> str:
    """What a program fills in."""
    name = word(draw)
    forms = ("%s", "%d", "%1$s", f"%({name})s", f"{{{name}}}", f"${{{name}}}", f"{{{{{name}}}}}", "%5.2f")
    return draw.choice(forms)


def changed(source: str, target: str, draw: random.Random) -> tuple[str, str]:
    """One more placeholder in both."""
    kind = draw.randrange(7)
    if kind == 0:
        for german, (english, figure) in WORDS.items():
            if source.startswith(german) and target.startswith(english):
                return f"{figure} {source[len(german) :]}", f"{figure} {target[len(english) :]}"
    one = draw.choice((number, address, variable))(draw)
    tag = word(draw, 1, 4)
    return (
        (f"{source} ({one})", f"{target} ({one})"),
        (f"{one}: {source}", f"{one}: {target}"),
        (f"{source} {one}", f"{target} {one}"),
        (f"{one} {source}", f"{one} {target}"),
        (f"<{tag}>{source}</{tag}>", f"<{tag}>{target}</{tag}>"),
        (f"{source.rstrip('.')}, {one}.", f"{target.rstrip('.')}, {one}."),
        (f"{source} – {one}", f"{target} – {one}"),
    )[kind]


def main() -> None:
    """Read, change, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("source", "target", "out_source", "out_target"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=None)
    parser.add_argument("--share", type=float, default=1.0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    pairs = list(zip(read(options.source), read(options.target), strict=True))[: options.lines]
    made = []
    for source, target in pairs:
        if draw.random() < options.share:
            for _ in range(draw.randint(1, 3)):
                source, target = changed(source, target, draw)
        made.append((source, target))
    for path, side in ((options.out_source, 0), (options.out_target, 1)):
        path.write_text("".join(f"{pair[side]}\n" for pair in made))


if __name__ == "__main__":
    main()
