"""Checkpoints of other programs as models of this one: one file for each program; this is their table.

A model is read with `Importer.read`, its architecture with `Importer.architecture`, its vocabularies with
`Importer.own_vocabularies` or `read_vocabularies`, and made with `convert`; `checkpoint.store.save_model`
writes it.
"""

from deepwire.convert.importers.fairseq import FairseqImporter
from deepwire.convert.importers.foreign_checkpoint import ForeignCheckpoint, read_foreign_checkpoint
from deepwire.convert.importers.huggingface import HuggingFaceImporter
from deepwire.convert.importers.importer import (
    Architecture,
    Importer,
    VocabularyFiles,
    convert,
    read_vocabularies,
)
from deepwire.convert.importers.marian import MarianImporter
from deepwire.convert.importers.neutron import NeutronImporter

__all__ = [
    "IMPORTERS",
    "Architecture",
    "ForeignCheckpoint",
    "Importer",
    "VocabularyFiles",
    "convert",
    "read_foreign_checkpoint",
    "read_vocabularies",
]

IMPORTERS: dict[str, Importer] = {
    importer.name: importer
    for importer in (FairseqImporter(), NeutronImporter(), HuggingFaceImporter(), MarianImporter())
}
