"""Scheduling problems, schedules, and the independent checker of schedules."""
