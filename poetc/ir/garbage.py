"""How often Python looks for garbage in processes that are poetc's own."""

import gc

THRESHOLDS = (10_000, 20, 20)


def collect_less() -> None:
    """Looks for garbage less often than by default: IR is many small objects that live long, which
    Python would look through each time."""
    gc.set_threshold(*THRESHOLDS)
