"""The formats that there are."""

from __future__ import annotations

from collections.abc import Mapping

from deepwire.export.contract import Format
from deepwire.export.ctranslate2 import CTranslate2

FORMATS: Mapping[str, Format] = {each.name: each for each in (CTranslate2(),)}
