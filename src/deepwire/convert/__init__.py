"""Models in the formats of other programs; a new format is a new file and a line in `formats.FORMATS`."""
