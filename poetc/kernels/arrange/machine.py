"""The machine that loops are arranged for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """The machine that kernels are arranged for: its registers for floats, how many floats one
    holds, the prices of operations in instructions, and how much code may be added."""

    registers: int = 32
    lanes: int = 1
    cache_bytes: int = 0
    """Of the cache of a core, beyond which loads wait; 0 without one."""
    load_floats: int = 1
    """Floats that one instruction loads from addresses that follow each other."""
    waiting: int = 8
    """Loads that wait for their use at a time, in registers."""
    latency_instructions: int = 0
    """Others that are done while an addition is under way, of what a loop carries from one
    iteration to the next; 0 if it does one after the other."""
    flop_instructions: int = 1
    """Instructions of an addition, multiplication or comparison."""
    loop_instructions: int = 2
    """Instructions of an iteration of a loop, beside one for each pointer that moves."""
    entry_instructions: int = 2
    """Instructions each time that a loop is begun, beside two for each pointer."""
    reach: int = 256
    """Elements that a load reaches from a pointer."""
    growth: float = 0.93
    """Operations of code that may be added, as a share of those of the step with loops as they are
    lowered. What is added takes less flash for each than what was there: firmware for a Cortex-M4
    takes half more."""
    runtime_operations: int = 520
    """The operations of code of that step that are not in kernels."""
    least_worth: float = 2e-5
    """The share of the step's instructions that each operation of more code saves at least."""
