"""The subject of an analysis: a model, its run, the text it reads, and the scores of its translations."""
