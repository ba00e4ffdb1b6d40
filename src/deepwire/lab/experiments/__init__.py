"""Experiments: what trains models, or parts of them, to answer a question, one room for each."""
