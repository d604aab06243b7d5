"""`python -m sessiond` is `sessiond`."""

from __future__ import annotations

import sys

from sessiond.cli import main

sys.exit(main())
