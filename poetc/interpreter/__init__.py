"""The reference interpreter: executes IR at any stage on NumPy arrays.

`run_func` executes StableHLO functions, `run_graph` graphs of the poet dialect, scheduled or not.
Both give the bits that the generated code gives.
"""

from poetc.interpreter.functions import InterpreterError, run_func
from poetc.interpreter.graphs import Run, run_graph

__all__ = ["InterpreterError", "Run", "run_func", "run_graph"]
