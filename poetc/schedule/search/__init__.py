"""The search for schedules and bounds, and what it says where there is none."""
