"""Rewrites of StableHLO that keep every bit of every result; see `poetc.simplify.driver`."""
