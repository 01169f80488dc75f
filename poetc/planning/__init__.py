"""Planning of a step: the schedule, the transfers and the memory, which depend on one another."""
