"""Measurements of poetc. Each script says what it measures and how it is run."""
