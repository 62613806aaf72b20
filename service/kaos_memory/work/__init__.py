"""Background work: folding and extraction."""
