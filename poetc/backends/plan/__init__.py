"""Schedules as compact byte strings, and programs that run them."""
