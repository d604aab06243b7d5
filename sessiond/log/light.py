"""structlog without rich: it would import it for prettier tracebacks, and the daemon would carry 14 MB for that.

Import structlog from here, never directly.
"""

from __future__ import annotations

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # says to import: there is none
    try:
        import structlog
    finally:
        del sys.modules["rich"]
else:
    import structlog

__all__ = ["structlog"]
