"""Checkpoints of Neutron as models: the golden ones give their golden numbers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_checkpoints import NEUTRON, golden, imported, parameters, write_neutron_vocabulary
from safetensors.torch import save_file

from deepwire.convert.importers import IMPORTERS
from deepwire.convert.importers.foreign_checkpoint import ForeignCheckpoint, read_foreign_checkpoint
from deepwire.convert.importers.importer import read_vocabularies
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError
from deepwire.model.translation_model import TranslationModel

torch.set_num_threads(1)
FAMILY = IMPORTERS["neutron"]
SIZE = 40
POST_NORM = {"type": "post_norm", "embedding_norm": True}


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Vocabularies:
    folder = tmp_path_factory.mktemp("vocabulary")
    for name in ("src.vcb", "tgt.vcb"):
        write_neutron_vocabulary(folder / name, SIZE - 4)
    return read_vocabularies(FAMILY, *FAMILY.vocabulary_files(folder, "de", "en"))


model_of = partial(imported, FAMILY)


def check_golden(model: TranslationModel, name: str) -> None:
    vectors = golden(name)
    real = vectors["in/tgt_out"] != 0
    with torch.no_grad():
        found = model.log_probs(vectors["in/src"], vectors["in/tgt_in"])
    assert (found - vectors["out/logp"])[real].abs().max() < 1e-5


def orders(name: str) -> list[Any]:
    """The connections that stand for the order of the case: Neutron's default has two forms here."""
    if "v2" in name:
        return ["pre_norm"]
    return [{"type": "pre_norm", "residual": "normalised"}, POST_NORM]


@pytest.mark.parametrize("form", ["pt", "safetensors"])
@pytest.mark.parametrize("name", NEUTRON)
def test_golden_models(name: str, form: str, tmp_path: Path, vocabularies: Vocabularies) -> None:
    """Structure comes from names and shapes, order of norm and residual from the user or the default."""
    path, tensors = tmp_path / f"model.{form}", parameters(name)
    if form == "pt":
        torch.save(tensors, path)
    else:
        save_file(tensors, path)
    foreign = read_foreign_checkpoint(path)
    told = FAMILY.architecture(foreign)
    assert told.known["data.source_bos"] is True
    assert told.known["model.embeddings.tie"] == "output"
    assert told.needed == (() if name.endswith("rel3") else ("model.heads",))
    assert told.assumed["model.encoder.connection"] == {"type": "pre_norm", "residual": "normalised"}
    for connection in orders(name):
        stack = {"connection": connection}
        check_golden(model_of(foreign, vocabularies, encoder=stack, decoder=stack), name)
    if "v2" not in name:
        check_golden(model_of(foreign, vocabularies), name)


def test_names_of_a_model_trained_with_dropout(vocabularies: Vocabularies) -> None:
    """Dropout between the two feed-forward maps changes a number; buffers are left out."""
    tensors = {
        key.replace("ff.net.2.", "ff.net.3."): value for key, value in parameters("nmt_std_v1_bias").items()
    }
    tensors |= {"enc.pemb.w": torch.ones(5, 32), "dec.mask": torch.ones(4, 4)}
    check_golden(model_of(ForeignCheckpoint(Path("x.pt"), tensors, {}), vocabularies), "nmt_std_v1_bias")


def test_shared_embeddings_are_one_matrix(vocabularies: Vocabularies) -> None:
    """Equal matrices are tied; what a run file ties must be equal."""
    tensors = parameters("nmt_std_v2")
    shared = {**tensors, "enc.wemb.weight": tensors["dec.wemb.weight"]}
    assert (
        FAMILY.architecture(ForeignCheckpoint(Path("x.pt"), shared, {})).known["model.embeddings.tie"]
        == "all"
    )
    with pytest.raises(ModelError, match=r"dec.wemb.weight differs from another tensor"):
        model_of(ForeignCheckpoint(Path("x.pt"), tensors, {}), vocabularies, embeddings={"tie": "all"})


def test_ids_stay_what_they_are(tmp_path: Path) -> None:
    """Pieces are numbered from 4 in the order of the file; what comes again keeps its first number."""
    (tmp_path / "common.vcb").write_text("9 the@@ cat\n\n5 <pad> dog the@@\n1 café\n")
    files = FAMILY.vocabulary_files(tmp_path, "de", "en")
    assert files[0] == files[1]
    vocabularies = read_vocabularies(FAMILY, *files)
    assert vocabularies.joint
    assert vocabularies.source.encode("the@@ cat dog café <pad>") == [4, 5, 6, 7, 3]
    assert vocabularies.source.decode([4, 5]) == "thecat"


def test_another_model_of_neutron() -> None:
    """A decoder without self-attention is not the standard model."""
    with pytest.raises(ModelError, match="no standard Transformer of Neutron"):
        FAMILY.architecture(ForeignCheckpoint(Path("x.pt"), parameters("nmt_rnmt"), {}))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_parameters_of_each_language(order: tuple[int, ...], vocabularies: Vocabularies) -> None:
    """MuLang: what each language has of its own comes from names and shapes, in the order asked for."""
    foreign = ForeignCheckpoint(Path("x.pt"), parameters("nmt_mulang"), {})
    assert FAMILY.languages(foreign) == 3
    known = FAMILY.architecture(foreign).known
    expected = {"norm": True, "transform": "released", "embedding": "both", "output_bias": True}
    assert known["model.languages"] == expected
    vectors = golden("nmt_mulang")
    (theirs,) = vectors["grad/param/dec.task_emb.weight"].abs().amax(1).nonzero().flatten().tolist()
    model = model_of(FAMILY.with_language_order(foreign, order), vocabularies)
    languages = torch.tensor([order.index(theirs)])
    real = vectors["in/tgt_out"] != 0
    with torch.no_grad():
        found = model.log_probs(vectors["in/src"], vectors["in/tgt_in"], languages=languages)
    assert (found - vectors["out/logp"])[real].abs().max() < 1e-5
    assert FAMILY.languages(ForeignCheckpoint(Path("x.pt"), parameters("nmt_std_v2"), {})) == 0
