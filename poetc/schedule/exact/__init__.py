"""What is proven: MILPs, relaxations, cuts and bounds."""
