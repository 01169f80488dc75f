"""The time of a step by a profile, once it is known where its pages are.

The scheduler has one duration for the transfers of a tensor. Where the store moves whole blocks, a
transfer takes longer or shorter by where its page lies in them, and by which block is in RAM
already from the one before. With the places of all pages, that can be followed step by step.
"""

from collections.abc import Sequence

from poetc.costmodel.cost import profiled_time_ns
from poetc.costmodel.device import Device
from poetc.schedule.arena.memory import MemoryPlan
from poetc.schedule.model.problem import Compute, PageIn, PageOut, Problem, Step


def predicted_time_ns(
    problem: Problem, steps: Sequence[Step], memory: MemoryPlan, device: Device
) -> int:
    """Time from the call of a step to its return, on a device with a profile.

    Transfers are the processor's, one after the other with the kernels: so they were measured.
    """
    profile = device.profile
    assert profile is not None
    transfers = profile.transfers
    buffer = transfers.buffer()
    time_ns = 0
    spent = 0.0
    if memory.bank_bytes is not None:
        # The first thing and the last: which values are valid, and that others are now.
        spent += transfers.open + transfers.commit
    pages = dict(enumerate(memory.start_pages))
    # New values of parameters go to the other bank than the old ones are in.
    banked = {
        v
        for v, tensor in enumerate(problem.tensors)
        if tensor.replaces is not None and pages[tensor.replaces] is not None
    }
    for step, written in zip(steps, memory.pages, strict=True):
        match step:
            case Compute(operation, _, variant):
                time_ns += problem.operations[operation].way(variant).time_ns
            case PageOut(v):
                place = written[0] + (memory.bank_bytes or 0 if v in banked else 0)
                pages[v] = place
                spent += transfers.cost(True, place, problem.tensors[v].stored_bytes, buffer)
            case PageIn(v):
                place = pages[v]
                assert place is not None
                spent += transfers.cost(False, place, problem.tensors[v].stored_bytes, buffer)
            case _:
                pass
    return time_ns + (profiled_time_ns(spent, device) if spent else 0)
