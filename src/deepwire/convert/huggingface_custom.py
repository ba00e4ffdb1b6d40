"""Any model as a folder with code for transformers, which imports the installed deepwire.

`AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)` reads it; Trainer trains it, and
`generate` searches as deepwire does.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from deepwire import __version__
from deepwire.checkpoint.model_files import write_tensors
from deepwire.checkpoint.store import LoadedModel, saved_buffers
from deepwire.config.choice import plugins_of
from deepwire.convert.export_format import ExportedModel, ExportFormat, ids_of_pieces
from deepwire.convert.huggingface import HuggingFace, quiet
from deepwire.data.vocabulary import EOS, Vocabularies
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_inputs import pad_batch
from deepwire.decoding.model_loading import stored_config
from deepwire.io.atomic import write_json

if TYPE_CHECKING:
    from deepwire.convert.modeling_deepwire import DeepwireForSeq2SeqLM

_CODE = "modeling_deepwire"
_BATCH = 32


class HuggingFaceCode(ExportFormat):
    """A custom-code folder of transformers."""

    name = "huggingface-code"
    packages, extra = HuggingFace.packages, HuggingFace.extra
    quantizations = ("float32",)
    computes_the_same = True

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Requirements there."""
        packages = dict.fromkeys(plugin.package for plugin in plugins_of(model.model.config))
        return (
            "the folder holds code that imports deepwire: load it with trust_remote_code=True",
            *(
                f"it needs the package {package} there: install it, and call "
                f"deepwire.plugins.use({package!r}) before the model is loaded"
                for package in packages
            ),
        )

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """See the base class."""
        shutil.copyfile(Path(__file__).with_name(f"{_CODE}.py"), folder / f"{_CODE}.py")
        translation = model.model
        several = model.metadata.get("languages")
        config = {
            "model_type": "deepwire",
            "architectures": ["DeepwireForSeq2SeqLM"],
            "auto_map": {
                "AutoConfig": f"{_CODE}.DeepwireConfig",
                "AutoModelForSeq2SeqLM": f"{_CODE}.DeepwireForSeq2SeqLM",
            },
            "deepwire_version": __version__,
            "dtype": "float32",
            "model": translation.config.model_dump(mode="json"),
            "source_size": translation.source_vocabulary,
            "target_size": translation.target_vocabulary,
            "own_parameters": translation.languages,
            "languages": {key: model.metadata[key] for key in ("languages", "directions", "tag")}
            if several
            else None,
            "source_bos": model.metadata.get("source_bos") is True,
            "decoding": stored_config(model).model_dump(mode="json"),
            "plugins": [plugin.to_json() for plugin in plugins_of(translation.config)],
        }
        write_json(folder / "config.json", config)
        decoding = stored_config(model)
        search = {
            "num_beams": decoding.beam,
            "num_return_sequences": decoding.n_best,
            "length_penalty": decoding.length_penalty,
        }
        write_json(folder / "generation_config.json", search)
        distinct = dict(translation.named_parameters()) | saved_buffers(translation)
        stored = {f"translation.{name}": value.detach() for name, value in distinct.items()}
        write_tensors(folder / "model.safetensors", stored, {"format": "pt"})
        model.vocabularies.save(folder / "vocabulary")
        tokenizer = {
            "tokenizer_class": "DeepwireTokenizer",
            "auto_map": {"AutoTokenizer": [f"{_CODE}.DeepwireTokenizer", None]},
            "source_bos": config["source_bos"],
        }
        write_json(folder / "tokenizer_config.json", tokenizer)

    def read(self, folder: Path) -> ExportedModel:
        """See the base class."""
        return _Read(folder)


class _Read(ExportedModel):
    def __init__(self, folder: Path) -> None:
        with quiet():
            from transformers import AutoModelForSeq2SeqLM

            self._model: DeepwireForSeq2SeqLM = AutoModelForSeq2SeqLM.from_pretrained(
                str(folder), trust_remote_code=True, local_files_only=True
            ).eval()
        words = Vocabularies.load(folder / "vocabulary")
        self._numbers = ids_of_pieces(words.source), ids_of_pieces(words.target)
        self._pieces = words.target.pieces(range(words.target.size))

    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> list[list[str]]:
        translations: list[list[str]] = []
        for start in range(0, len(sources), _BATCH):
            rows = [self._source(source) for source in sources[start : start + _BATCH]]
            given = self._model.generate(
                pad_batch(rows, self._model.device), to=language, **config.model_dump()
            )
            translations += [
                [self._pieces[number] for number in row[1 : row.index(EOS)]] for row in given.tolist()
            ]
        return translations

    @torch.inference_mode()
    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        device, scores = self._model.device, list[list[float]]()
        for source, pieces in zip(sources, targets, strict=True):
            ids = [*(self._numbers[1][piece] for piece in pieces), EOS]
            read, labels = (pad_batch([each], device) for each in (self._source(source), ids))
            result = self._model(read, labels=labels, to=language)
            scores.append(result.logits[0, torch.arange(len(ids)), torch.tensor(ids)].tolist())
        return scores

    def _source(self, pieces: Sequence[str]) -> list[int]:
        begin = [1] if self._model.config.source_bos else []
        return [*begin, *(self._numbers[0][piece] for piece in pieces), EOS]
