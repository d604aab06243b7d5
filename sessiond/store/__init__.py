"""Stage 2: events become rows."""
