"""Schedules that are found quickly, without proofs."""
