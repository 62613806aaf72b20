"""Retrieval quality on LoCoMo, side by side with peers. `python -m bench.recall --help`."""
