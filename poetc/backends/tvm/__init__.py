"""TVM: a scheduled graph as a Relax module, compiled for Linux-class devices and run there.

Nothing here is imported unless it is asked for, and TVM with it; see `requirement.py`.
"""

HOST = "host"
"""The target that is the machine that this runs on."""
