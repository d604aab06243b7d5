"""sessiond: the session journal for coding agents."""

__version__ = "0.1.0"
