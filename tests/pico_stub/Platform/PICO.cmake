# No operating system.
