"""Scripts whose words have no spaces between them."""

from __future__ import annotations

UNSPACED = (
    "\u0e00-\u0eff"  # Thai and Lao
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff"  # Han
)
"""Their characters, for between the brackets of a regular expression; not Hangul, since Korean has spaces."""
