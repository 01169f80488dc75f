"""What is scheduled, what a schedule is, and the independent checker of it."""
