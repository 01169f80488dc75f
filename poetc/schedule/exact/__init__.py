"""Proofs: MILPs, relaxations, cuts and bounds."""
