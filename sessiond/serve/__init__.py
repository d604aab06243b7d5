"""Stage 4: rows become answers."""
