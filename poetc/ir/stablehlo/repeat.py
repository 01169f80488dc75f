"""Loops that are kept as such: their steps are counted, and what they fill is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType, i32
from xdsl.ir import Region, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    prop_def,
    region_def,
    var_operand_def,
)

from poetc.ir import dense, types
from poetc.ir.stablehlo.base import (
    INTS,
    Array,
    Fuses,
    IntRange,
    StablehloOp,
    check,
    check_elements,
    check_type,
    element_type_of,
    i64s,
    int_attr,
    ints,
    shape_of,
    tensor_type,
    with_shape,
)
from poetc.ir.stablehlo.control import ControlOp, Execute, check_region


@dataclass(frozen=True)
class Stack:
    """Where the steps of a loop write into a tensor: step `i` a window that is all of it but along
    `axis`, where it begins at `first + step * i`."""

    axis: int
    first: int
    step: int

    def covers(self, extent: int, window: int, trips: int) -> bool:
        """Whether all steps together write all of a tensor of that extent along the axis."""
        written = np.zeros(extent, bool)
        for i in range(trips):
            start = self.first + self.step * i
            written[start : start + window] = True
        return bool(written.all())


@irdl_op_definition
class RepeatOp(ControlOp):
    """Runs the body `trips` times.

    The operands are the values that the loop carries, at first; then the tensors that its steps
    fill (`stacks`); then what the body reads besides. The body takes the number of the step, from
    0 on, the carried values and what it reads besides. It returns the next carried values, and the
    window that the step writes into each tensor that is filled. Results are the last carried
    values and the filled tensors. The body uses nothing from outside.
    """

    FUSES: ClassVar = Fuses.LOOP
    name = "resume.repeat"
    inputs = var_operand_def(TensorType)
    trips_attr = prop_def(IntegerAttr, prop_name="trips")
    carried_attr = prop_def(IntegerAttr, prop_name="carried")
    stacks_attr = prop_def(INTS, prop_name="stacks")
    body = region_def()

    def __init__(
        self,
        trips: int,
        carried: Sequence[SSAValue],
        filled: Sequence[SSAValue],
        captured: Sequence[SSAValue],
        stacks: Sequence[Stack],
        body: Region,
    ):
        flat = [n for stack in stacks for n in (stack.axis, stack.first, stack.step)]
        super().__init__(
            operands=[[*carried, *filled, *captured]],
            result_types=[[value.type for value in (*carried, *filled)]],
            properties={
                "trips": int_attr(trips),
                "carried": int_attr(len(carried)),
                "stacks": i64s(flat),
            },
            regions=[body],
        )

    @property
    def trips(self) -> int:
        """How often the body runs."""
        return self.trips_attr.value.data

    @property
    def carries(self) -> int:
        """How many values the loop carries."""
        return self.carried_attr.value.data

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Where each tensor that is filled is written."""
        flat = ints(self.stacks_attr)
        return tuple(Stack(*flat[i : i + 3]) for i in range(0, len(flat), 3))

    @property
    def captured(self) -> Sequence[SSAValue]:
        """The other values that the body reads."""
        return self.operands[len(self.results) :]

    def verify_op(self) -> None:
        check(self.trips > 0, f"trips = {self.trips} must be positive")
        check(len(self.stacks_attr) % 3 == 0, "stacks has three numbers for each tensor")
        filled, carries = len(self.stacks), self.carries
        check(carries >= 0 and carries + filled <= len(self.operands), "too few operands")
        types = tuple(value.type for value in self.operands)
        check(tuple(self.result_types) == types[: carries + filled], "results are not as operands")
        arguments = (TensorType(i32, ()), *types[:carries], *types[carries + filled :])
        end = self.body.block.last_op
        returned = end.operand_types if end is not None else ()
        windows = tuple(returned[carries:])
        check_region("the body", self.body, arguments, (*types[:carries], *windows))
        check(len(windows) == filled, f"the body returns {len(windows)} windows, not {filled}")
        for type, window, stack in zip(types[carries:], windows, self.stacks, strict=False):
            shape = list(shape_of(type))
            check(0 <= stack.axis < len(shape), f"stacks has no axis {stack.axis} of {type}")
            extent = shape_of(window)[stack.axis] if shape_of(window) else 0
            shape[stack.axis] = extent
            check_type("a window", window, with_shape(type, shape))
            for place in (stack.first, stack.first + stack.step * (self.trips - 1)):
                inside = 0 <= place <= shape_of(type)[stack.axis] - extent
                check(inside, f"a window at {place} is not inside of {type}")

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        carries, filled = self.carries, len(self.results)
        values = list(operands[:carries])
        full = [operand.copy() for operand in operands[carries:filled]]
        for i in range(self.trips):
            found = execute(self.body.block, [np.asarray(i, np.int32), *values, *operands[filled:]])
            values = found[:carries]
            for array, window, stack in zip(full, found[carries:], self.stacks, strict=True):
                start = stack.first + stack.step * i
                place = slice(start, start + window.shape[stack.axis])
                array[(slice(None),) * stack.axis + (place,)] = window
        return [*values, *full]


@irdl_op_definition
class PositionOp(StablehloOp):
    """`first + step * i` for the number of a step of a loop: a place that step `i` reads."""

    FUSES: ClassVar = Fuses.LEAF
    name = "resume.position"
    iteration = operand_def(TensorType)
    trips_attr = prop_def(IntegerAttr, prop_name="trips")
    first_attr = prop_def(IntegerAttr, prop_name="first")
    step_attr = prop_def(IntegerAttr, prop_name="step")

    def __init__(
        self, iteration: SSAValue, trips: int, first: int, step: int, type: TensorType | None = None
    ):
        """The number is below `trips`. The type is by default that of the number."""
        properties = {
            "trips": int_attr(trips),
            "first": int_attr(first),
            "step": int_attr(step),
        }
        self._init([iteration], type or tensor_type(iteration), properties)  # pyright: ignore

    @property
    def first(self) -> int:
        """The place in step 0."""
        return self.first_attr.value.data

    @property
    def step(self) -> int:
        """How far apart the places of two steps are that follow each other."""
        return self.step_attr.value.data

    @property
    def trips(self) -> int:
        """Steps of the loop."""
        return self.trips_attr.value.data

    def int_range(self, ranges: Sequence[IntRange] = ()) -> IntRange:
        """The least and the greatest place."""
        last = self.first + self.step * (self.trips - 1)
        return min(self.first, last), max(self.first, last)

    def verify_op(self) -> None:
        check_type("operand", self.iteration.type, TensorType(i32, ()))
        check_elements("result", self.result, types.with_arithmetic("signed", "unsigned"))
        check(self.trips > 0, f"trips = {self.trips} must be positive")
        self._verify_result(with_shape(self.result, ()))
        limits = np.iinfo(dense.dtype_of(element_type_of(self.result)))
        least, most = self.int_range()
        check(limits.min <= least and most <= limits.max, "a place overflows")

    def evaluate(self, *operands: Array) -> Array:
        place = self.first + self.step * operands[0].astype(np.int64)
        return place.astype(dense.dtype_of(element_type_of(self.result)))
