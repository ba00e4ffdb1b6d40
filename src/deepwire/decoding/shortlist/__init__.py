"""Lexical shortlists: a batch is translated with the target subwords that its source can bring forth."""
