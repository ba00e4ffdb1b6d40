"""The formats that there are."""

from __future__ import annotations

from collections.abc import Mapping

from deepwire.export.argos import Argos
from deepwire.export.ctranslate2 import CTranslate2
from deepwire.export.export_format import ExportFormat
from deepwire.export.huggingface import HuggingFace
from deepwire.export.huggingface_custom import HuggingFaceCode
from deepwire.export.marian import Marian
from deepwire.export.onnx import ONNX
from deepwire.export.torch_programs import AOTInductor, TorchExport

_ALL: tuple[ExportFormat, ...] = (
    CTranslate2(),
    ONNX(),
    TorchExport(),
    AOTInductor(),
    HuggingFace(),
    HuggingFaceCode(),
    Argos(),
    Marian(),
)
FORMATS: Mapping[str, ExportFormat] = {each.name: each for each in _ALL}
