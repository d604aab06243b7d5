"""Stage 1: bytes become events."""
