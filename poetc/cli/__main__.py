"""`python -m poetc.cli`."""

import sys

from poetc.cli import main

sys.exit(main())
