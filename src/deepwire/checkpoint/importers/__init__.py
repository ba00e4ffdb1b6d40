"""Checkpoints of other programs as models of this one: one file for each family; this is their table.

A model is read with `read_foreign`, its architecture with `Family.architecture`, its vocabularies with
`read_vocabularies`, and made with `convert`; `checkpoint.store.save_model` writes it.
"""

from deepwire.checkpoint.importers.archive import Foreign, read_foreign
from deepwire.checkpoint.importers.base import Architecture, Family
from deepwire.checkpoint.importers.convert import convert
from deepwire.checkpoint.importers.fairseq import FairseqFamily
from deepwire.checkpoint.importers.neutron import NeutronFamily
from deepwire.checkpoint.importers.vocabulary import VocabularyFiles, read_vocabularies

__all__ = [
    "FAMILIES",
    "Architecture",
    "Family",
    "Foreign",
    "VocabularyFiles",
    "convert",
    "read_foreign",
    "read_vocabularies",
]

FAMILIES: dict[str, Family] = {family.name: family for family in (FairseqFamily(), NeutronFamily())}
