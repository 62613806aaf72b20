"""Models: embeddings, digests, extraction by Mem0, token counts."""
