"""Stage 3: rows become digests, then leave."""
