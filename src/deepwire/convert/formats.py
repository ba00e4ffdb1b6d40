"""The formats that there are."""

from __future__ import annotations

from collections.abc import Mapping

from deepwire.convert.argos import Argos
from deepwire.convert.ctranslate2 import CTranslate2
from deepwire.convert.export_format import ExportFormat
from deepwire.convert.graph_formats import ONNX, TorchExport
from deepwire.convert.huggingface import HuggingFace
from deepwire.convert.huggingface_custom import HuggingFaceCode
from deepwire.convert.marian import Marian

_ALL = (CTranslate2(), ONNX(), TorchExport(), HuggingFace(), HuggingFaceCode(), Argos(), Marian())
FORMATS: Mapping[str, ExportFormat] = {each.name: each for each in _ALL}
