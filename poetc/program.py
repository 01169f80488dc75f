"""A compiled training step that runs in this process."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from poetc import emit, views
from poetc.backends.c.entries import entry_arguments
from poetc.backends.c.layout import argument_places, result_places
from poetc.backends.c.shared import UNTOUCHED, SharedProgram
from poetc.compilation import CompiledStep, compile_step
from poetc.errors import InputError, StepError
from poetc.options import Given
from poetc.planning.solver import ProgressCallback
from poetc.request import options_of
from poetc.signature import Signature
from poetc.source import Source
from poetc.state import State, check_known
from poetc.step_data import StepData, read_step
from poetc.streams import check_writable, write

if TYPE_CHECKING:
    from poetc.driver import Entry
    from poetc.report import Summary


class Program:
    """A compiled training step, with its parameters; `poetc.compile` makes it.

    *Parameters* are what a step keeps for the next one: weights, optimiser state and buffers that
    it updates, and what is frozen. *Inputs* are what each step is given, *results* what it returns
    that is not the new value of a parameter.

    The C program is compiled when it is first needed, and has an arena of its own, so that programs
    do not disturb one another. A program does one step at a time: threads wait for each other. The
    steps of different programs run side by side.
    """

    def __init__(self, source: Source, step: CompiledStep, given: Given) -> None:
        self._source, self._step, self._given = source, step, given
        self._lock = threading.RLock()
        graph = step.compiled.graph
        self._arguments, self._results = argument_places(graph), result_places(graph)
        self._signature = Signature(source, self._arguments, self._results)
        self._kept = self._signature.kept
        if source.values and len(source.values) != len(self._arguments):
            raise InputError(
                f"the step takes {len(self._arguments)} arguments, not {len(source.values)}"
            )
        # Values that the last call returned and the program still has.
        self._returned: dict[int, np.ndarray] = {}
        # Copies: what is given may be changed before it is needed.
        self._values = {i: self._signature.array(i, v).copy() for i, v in source.values.items()}

    @staticmethod
    def of(
        source: Source,
        given: Given,
        progress: ProgressCallback | None = None,
        callers: int = 1,
    ) -> Program:
        """Compiles a source; `callers` are the functions between this one and the user's. Raises
        what `poetc.compile` does."""
        doubts: list[str] = []
        try:
            options = options_of(given, doubts.append)
            backend = emit.load("c")
            executor = emit.executor(given, backend, options)
            arrange, untiled = not backend.keeps_loops(given), backend.untiled(given)
            options = replace(options, executor=executor, arrange=arrange, untiled=untiled)
            module = source.module()
            if (path := given.text("data")) is not None:
                values = dict(enumerate(read_step(module, path).arguments))
                source = replace(source, values=values)
            step = compile_step(
                module, source.name, options, given, warn=doubts.append, progress=progress
            )
        finally:
            for doubt in doubts:
                warnings.warn(doubt, stacklevel=2 + callers)
        return Program(source, step, given)

    def __repr__(self) -> str:
        device = self._step.compiled.options.device_name
        return f"<Program {self._source.name}: {self.ram_bytes:,} bytes of RAM on {device}>"

    @property
    def report(self) -> Summary:
        """The RAM, time and energy of the program, and how good its schedule is: a table in
        notebooks."""
        return self._step.summary

    @property
    def ram_bytes(self) -> int:
        """All of the RAM that the program takes on the device."""
        return self._step.compiled.ram_bytes

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs in the order of `step`; settings, which keep their values until
        they are given by name, come last."""
        return self._signature.inputs

    # Parameters

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """Copies of the parameters, by their names in the source, such as `params.hidden.w`.

        What is assigned changes those that it has. Raises InputError for names that there are not
        and other shapes or types, and in reading for parameters without values.
        """
        values = self._kept_values()
        return {self._signature.names[i]: values[i] for i in sorted(values)}

    @parameters.setter
    def parameters(self, values: Mapping[str, Any]) -> None:
        if not isinstance(values, Mapping):
            kind = type(values).__name__
            raise InputError(f"parameters are set by a mapping of names to arrays, not by {kind}")
        self._set(self._signature.parameters(values))

    def tree(self, name: str) -> Any:
        """Copies of parameters as the argument `name` of the source has them: a pytree of the
        `params` of a JAX step, the `parameters` of a module of PyTorch by their names.

        Raises InputError for an argument that there is not, or that is an input.
        """
        part, values = self._signature.kept_part(name), self._kept_values()
        return part.tree([values[i] for i in part.numbers])

    def load(self, **trees: Any) -> None:
        """Sets the parameters in arguments of the source, each given as `tree` returns it.

        Raises InputError for arguments that there are not, other structures, shapes and types.
        """
        signature = self._signature
        found = [signature.arrays(signature.kept_part(n), tree) for n, tree in trees.items()]
        self._set({i: array for arrays in found for i, array in arrays.items()})

    # Steps

    def step(self, *inputs: Any, **named: Any) -> Any:
        """Does a step: inputs in the order of the source, or by name; arrays of NumPy, JAX or
        PyTorch, or numbers.

        Returns the results as arrays of NumPy: a single one as it is, several as a tuple. One that
        is a pytree in the source is that, with None where there are new values of parameters.

        Raises TypeError for inputs that are missing or too many, InputError for those of another
        structure, shape or type, for parameters without values and where no C compiler is found,
        and StepError where the step fails. Parameters in RAM have no values after a StepError, but
        for those that say that nothing was done; parameters on storage are as before.
        """
        given = self._signature.bound(inputs, named)
        with self._lock:
            self._set({i: given[i] for i in self._kept & given.keys()})
            self._values |= {i: given[i] for i in given.keys() - self._kept}
            check_known(self._state.missing, self._signature.names)
            results = self._run()
        return self._signature.results(results)

    @cached_property
    def entries(self) -> dict[str, EntryCall]:
        """Other entry points by name: functions of their inputs, which change no parameter."""
        return {e.name: EntryCall(self, e) for e in self._step.compiled.entries}

    def predict(self, *inputs: Any, **named: Any) -> Any:
        """The results of the entry point `predict` for inputs, on the parameters as they are now;
        see `step`. Raises InputError for a program that was compiled without one."""
        if "predict" not in self.entries:
            raise InputError("the program has no entry point predict: compile it with predict=...")
        return self.entries["predict"](*inputs, **named)

    def call(self, *args: Any) -> Any:
        """A step as a function of all arguments of the source, parameters included, each in its
        structure; what the source returns for them, with arrays of NumPy that cannot be written.

        Parameters that are the arrays that the last call returned are in the program already.
        Raises what `step` does.
        """
        leaves = self._signature.leaves(args)
        with self._lock:
            there = {i for i in self._kept if leaves[i] is self._returned.get(i)}
            given = {i: self._signature.array(i, leaves[i]) for i in leaves.keys() - there}
            results = self._complete(given)
            for k, place in enumerate(self._results):
                if place.updates is not None:
                    results[k] = _as_given(results[k], leaves[place.updates])
            for array in results:
                array.flags.writeable = False
            # Of a view nobody can make it writeable again.
            results = [array.view() for array in results]
            for k, place in enumerate(self._results):
                if place.updates is not None:
                    self._returned[place.updates] = results[k]
        return self._signature.returned(results)

    def _complete(self, values: Mapping[int, np.ndarray]) -> list[np.ndarray]:
        """A step on these arguments; all results, new values of parameters among them."""
        with self._lock:
            self._set({i: values[i] for i in self._kept & values.keys()})
            self._values |= {i: values[i] for i in values.keys() - self._kept}
            check_known(self._state.missing, self._signature.names)
            made, new = self._run(), self._state.values()
        results: list[np.ndarray] = []
        for place, array in zip(self._results, made, strict=True):
            if place.updates is not None:
                array = new[place.updates]
            assert array is not None
            results.append(array)
        return results

    def _run(self) -> list[np.ndarray | None]:
        """Does a step on the inputs in `_values`; None in place of new values of parameters."""
        self._returned = {}
        for i in self._values.keys() - self._kept:
            self._shared.set_argument(i, self._values[i])
        try:
            return self._shared.step()
        except StepError as error:
            if error.status not in UNTOUCHED:
                self._state.lose()
            raise

    # Files

    def save(
        self, path: str | os.PathLike[str], form: str = "c", *, data: bool = False, **options: Any
    ) -> None:
        """Writes the program as `poetc --emit` does: "c", a directory of C (`layout`, `name`,
        `kernels` and `target` say how), "ir", "plan", "report" or "tvm".

        With `data`, the directory also has the arguments of one step as they are now, and its
        results, so that `make run` does that step and compares; inputs are those of the last step.
        Options that were given to `compile` hold unless others are given.

        Raises InputError for what cannot be written, TypeError for options that there are not.
        """
        given = _given_to_write(form, options, self._given)
        backend, output = emit.load(form), os.fspath(path)
        backend.check(given, output)
        emit.check_entries([*self.entries], form, given)
        if backend.plans(given) and self._step.compiled.options.executor is None:
            raise InputError("plans are for programs that are compiled with executor='plan'")
        check_writable(output)
        found = self._step_data() if data else None
        backend.emit(emit.Job(self._step, given, output, found))

    def draw(self, kind: str, path: str | os.PathLike[str]) -> None:
        """Draws the schedule, as the options of the command line do: "report", a page for the
        browser, "trace", for Perfetto, or "plot", the memory over the step.

        Raises InputError for another kind, and for what cannot be drawn or written.
        """
        if kind not in views.PICTURES:
            raise InputError(f"no picture {kind!r}; there are {', '.join(views.PICTURES)}")
        output = os.fspath(path)
        views.check(kind, output)
        check_writable(output)
        write(output, views.draw(self._step, {kind: output})[output])

    def firmware(
        self, board: str, path: str | os.PathLike[str], *, data: bool = True, **options: Any
    ) -> Program:
        """Compiles the same source for a board and writes its firmware, which `make` builds in the
        directory `path`; the program that it is.

        Options that were given to `compile` hold unless others are given. With `data`, on a board
        with an emulator, `make run` does one step there on the parameters as they are now and the
        last inputs, and compares with what this process computes.

        Raises what `poetc.compile` and `save` do.
        """
        given = Given({**self._given.texts, **Given.of({"board": board, **options}).texts})
        source = replace(self._source, values=self._all_values() if data else {})
        program = Program.of(source, Given({n: t for n, t in given.texts.items() if n != "data"}))
        made_for = program._step.compiled.options.board
        assert made_for is not None
        program.save(path, data=data and made_for.qemu != "")
        return program

    def _step_data(self) -> StepData:
        """The arguments of a step as they are, and its results, which another program computes."""
        values = self._all_values()
        trial = Program(replace(self._source, values={}), self._step, self._given)
        results = dict(enumerate(trial._complete(values)))
        return StepData(tuple(values[i] for i in range(len(values))), results)

    def _all_values(self) -> dict[int, np.ndarray]:
        """All arguments of a step, as they are now. Raises InputError if some are not known."""
        with self._lock:
            kept = self._kept_values()
            values = self._values | kept
        names = self._signature.names
        if lacking := [name for i, name in enumerate(names) if i not in values]:
            raise InputError(f"data: no step was given {', '.join(lacking)} yet")
        return values

    # The values behind it

    @cached_property
    def _shared(self) -> SharedProgram:
        c = self._step.compiled
        return SharedProgram(c.module, c.graph, c.options.executor, c.points)

    @cached_property
    def _state(self) -> State:
        state = State(self._shared, self._kept)
        state.set({i: self._values.pop(i) for i in self._kept & self._values.keys()})
        return state

    def _set(self, values: Mapping[int, np.ndarray]) -> None:
        with self._lock:
            self._returned = {i: a for i, a in self._returned.items() if i not in values}
            self._state.set(values)

    def _kept_values(self) -> dict[int, np.ndarray]:
        with self._lock:
            check_known(self._state.missing, self._signature.names)
            return self._state.values()


class EntryCall:
    """An entry point of a program beside its step."""

    def __init__(self, program: Program, entry: Entry) -> None:
        self._program, self._entry = program, entry
        places = entry_arguments(entry.point, program._arguments)
        source = program._source.entries.get(entry.name) or Source(entry.name, b"")
        self._signature = Signature(source, places, result_places(entry.compiled.graph))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs in order."""
        return self._signature.inputs

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The results for these inputs. Raises what `Program.step` does; parameters stay as they
        are."""
        given, program = self._signature.bound(inputs, named), self._program
        with program._lock:
            check_known(program._state.missing, program._signature.names)
            shared = program._shared.entries[self._entry.name]
            for i, j in self._entry.parameters.items():
                shared.share_argument(i, program._shared, j)
            for i, array in given.items():
                shared.set_argument(i, array)
            results = shared.step()
        return self._signature.results(results)


def _given_to_write(form: str, options: Mapping[str, Any], compiled: Given) -> Given:
    """The options with which a program is written in a form: those given for that, and those that
    it was compiled with. Raises InputError for another form, and for options of others."""
    if form not in emit.names():
        raise InputError(f"no form {form!r}; there are {', '.join(emit.names())}")
    backend, own = emit.load(form), Given.of(options)
    takes = {*backend.takes, *backend.borrows} - {"data"}
    if other := sorted(own.texts.keys() - takes):
        raise InputError(f"{', '.join(other)} do not say how {form!r} is written")
    # Fields about another form of writing mean nothing here.
    hows = {name for other in map(emit.load, emit.names()) for name in other.takes} - takes
    known = {name: text for name, text in compiled.texts.items() if name not in hows}
    return Given({**known, **own.texts})


def _as_given(held: np.ndarray, leaf: Any) -> np.ndarray:
    """The new value of an argument in the type of the argument: with `pages`, weights that are f32
    in the source are held in 16 bits."""
    is_f32 = str(getattr(leaf, "dtype", "")).endswith("float32")
    return held.astype(np.float32) if is_f32 and held.dtype.itemsize == 2 else held
