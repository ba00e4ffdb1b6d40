"""Checkpoints of other programs as models of this one: one file for each program; this is their table.

A model is read with `Importer.read`, its architecture with `Importer.architecture`, its vocabularies with
`Importer.own_vocabularies` or `importer.read_vocabularies`, and made with `importer.convert`;
`checkpoint.store.save_model` writes it.
"""

from deepwire.convert.importers.fairseq import FairseqImporter
from deepwire.convert.importers.huggingface import HuggingFaceImporter
from deepwire.convert.importers.importer import Importer
from deepwire.convert.importers.marian import MarianImporter
from deepwire.convert.importers.neutron import NeutronImporter

IMPORTERS: dict[str, Importer] = {
    importer.name: importer
    for importer in (FairseqImporter(), NeutronImporter(), HuggingFaceImporter(), MarianImporter())
}
