"""`Storage` in one directory, for one process: SQLite is the truth, Chroma an index of it."""
