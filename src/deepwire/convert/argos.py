"""A package of Argos Translate, which LibreTranslate installs too: a CTranslate2 model and one segmentation.

The folder gets `translate-de_en-1_0.argosmodel`, a zip archive with one folder of that name. Argos cuts text
with one SentencePiece model for both sides, and does not forbid UNK. So the vocabulary must be joint, and UNK
gets no probability.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.ctranslate2 import VOCABULARY_MAP, CTranslate2
from deepwire.convert.export_format import ExportedModel, ExportFormat, without_symbols
from deepwire.data.languages import named_direction
from deepwire.data.subwords.sentencepiece import SentencePieceVocabulary
from deepwire.data.vocabulary import UNK
from deepwire.errors import ModelError
from deepwire.io.atomic import json_text

ENDING = ".argosmodel"
_ARGOS, _PACKAGE = "1.9", "1.0"


@dataclass(frozen=True)
class Argos(ExportFormat):
    """Argos Translate's packages.

    Attributes:
        from_name, to_name: The languages as Argos shows them; their codes without.
    """

    from_name: str = ""
    to_name: str = ""

    name = "argos"
    quantizations = ("float32", "float16", "bfloat16", "int16", "int8")
    never = (*CTranslate2.never, UNK)  # which Argos does not forbid
    _model = CTranslate2()

    def require(self, model: LoadedModel) -> None:
        """See the base class."""
        self._model.require(model)
        words = model.vocabularies
        if words.source is not words.target or not isinstance(words.source, SentencePieceVocabulary):
            kind = "one for each side" if words.source is not words.target else f"of the type {words.type}"
            raise ModelError(
                f"{model.folder}: the vocabulary is {kind}, and Argos has one SentencePiece model for both",
                "train with data.vocabulary: {type: bpe, joint: true}, or export to another format",
            )
        if model.metadata.get("source_bos") is True:
            raise ModelError(f"{model.folder}: its sources begin with BOS, which Argos does not write")
        if named_direction(model.metadata) is None:
            raise ModelError(
                f"{model.folder}: does not say its languages, which Argos wants",
                "train with data.source and data.target, such as de and en",
            )

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Rules of Argos that differ."""
        return (
            "Argos searches with a beam of 4 and a length penalty of 0.2, and fetches a splitter of "
            "sentences at its first use",
            "on CPUs Argos computes in int8, whatever the package has; "
            "ARGOS_COMPUTE_TYPE=float32 changes that",
        )

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """See the base class."""
        words = model.vocabularies.source
        assert isinstance(words, SentencePieceVocabulary)  # as `require` has seen
        codes = {side: str(model.metadata[side]) for side in ("source", "target")}
        version = _PACKAGE.replace(".", "_")
        top = folder / f"translate-{codes['source']}_{codes['target']}-{version}"
        (top / "model").mkdir(parents=True)
        self._model.write(without_symbols(model, [UNK]), top / "model", quantization)
        shutil.rmtree(top / "model" / "vocabulary", ignore_errors=True)
        (top / "model" / VOCABULARY_MAP).unlink(missing_ok=True)  # which Argos would not use
        (top / "sentencepiece.model").write_bytes(words.model)
        metadata = {
            "package_version": _PACKAGE,
            "argos_version": _ARGOS,
            "type": "translate",
            "from_code": codes["source"],
            "from_name": self.from_name or codes["source"],
            "to_code": codes["target"],
            "to_name": self.to_name or codes["target"],
        }
        (top / "metadata.json").write_text(json_text(metadata), encoding="utf-8")
        with zipfile.ZipFile(folder / f"{top.name}{ENDING}", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(top.rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(folder))
        shutil.rmtree(top)

    def read(self, folder: Path) -> ExportedModel:
        """See the base class."""
        (package,) = folder.glob(f"*{ENDING}")
        with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(package) as archive:
            archive.extractall(place)
            # CTranslate2 has the whole model in memory.
            return self._model.read(Path(place) / package.stem / "model")

    def version(self) -> str:
        """See the base class."""
        return f"Argos package {_PACKAGE}, {self._model.version()}"
