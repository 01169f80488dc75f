"""`run_graph`: residence, the peak, paging and the arena."""

import numpy as np
import pytest

from poetc.interpreter import InterpreterError, run_graph
from poetc.ir.text import parse_module

F32 = np.float32
V = "tensor<4xf32>"
PAGE = f"!poet.page<{V}>"
X = np.array([1, 2, 3, 4], F32)


def negate(result: str, operand: str, attributes: str = "") -> str:
    return (
        f'%{result} = poet.compute "negate" (%a = %{operand} : {V}) -> {V} {attributes} {{\n'
        f"  %n = stablehlo.negate %a : {V}\n  poet.yield %n : {V}\n}}"
    )


def add(result: str, lhs: str, rhs: str, attributes: str = "") -> str:
    return (
        f'%{result} = poet.compute "add" (%a = %{lhs} : {V}, %b = %{rhs} : {V}) -> {V} '
        f"{attributes} {{\n  %s = stablehlo.add %a, %b : {V}\n  poet.yield %s : {V}\n}}"
    )


def free(value: str) -> str:
    return f"poet.free %{value} : {V}"


def pageout(page: str, value: str, offset: str = "") -> str:
    return f"%{page} = poet.pageout %{value} {offset} : {V} -> {PAGE}"


def pagein(value: str, page: str, offset: str = "") -> str:
    return f"%{value} = poet.pagein %{page} {offset} : {PAGE} -> {V}"


def graph(*ops: str, args: str = f"%x: {V}", result: str = "y", attributes: str = ""):
    body = "\n".join(ops)
    return parse_module(
        f"poet.graph @main({args}) -> {V} {attributes} {{\n{body}\npoet.return %{result} : {V}\n}}",
        "test.mlir",
    )


def test_unscheduled_graph_keeps_everything():
    run = run_graph(graph(negate("h", "x"), negate("g", "h"), add("y", "g", "x")), [X])
    assert run.results[0].tolist() == [2, 4, 6, 8]
    assert run.peak_bytes == 64
    assert run.peak_at == 'poet.compute "add"'
    assert (run.page_ins, run.page_outs, run.recomputes) == (0, 0, 0)


def test_free_lowers_the_peak():
    ops = negate("h", "x"), free("x"), negate("g", "h"), free("h"), negate("y", "g"), free("g")
    run = run_graph(graph(*ops), [X], ram_bytes=32)
    assert run.results[0].tolist() == [-1, -2, -3, -4]
    assert run.peak_bytes == 32


def test_in_place_needs_no_second_buffer():
    ops = negate("h", "x", "inplace [[0, 0]]"), negate("y", "h", "inplace [[0, 0]]")
    assert run_graph(graph(*ops), [X]).peak_bytes == 16


def test_workspace_counts_while_the_kernel_runs():
    cost = "cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 6, flops = 4>"
    run = run_graph(graph(negate("h", "x", cost), free("x"), negate("y", "h"), free("h")), [X])
    assert run.peak_bytes == 16 + 16 + 8


def test_ram_limit():
    with pytest.raises(InterpreterError, match='"negate" needs 32 bytes of RAM, 31 allowed'):
        run_graph(graph(negate("y", "x")), [X], ram_bytes=31)


def test_paging():
    run = run_graph(
        graph(
            negate("h", "x"),
            pageout("p", "h"),
            free("h"),
            add("g", "x", "x"),
            free("x"),
            pagein("h2", "p"),
            add("y", "g", "h2"),
            free("g"),
            free("h2"),
        ),
        [X],
    )
    assert run.results[0].tolist() == [1, 2, 3, 4]
    assert (run.page_outs, run.page_out_bytes) == (1, 16)
    assert (run.page_ins, run.page_in_bytes) == (1, 16)
    assert run.peak_bytes == 48


def test_arguments_may_start_on_storage():
    attributes = '{poet.role = "param", poet.updates = 0 : i64}'
    module = parse_module(
        f"""poet.graph @main(%w: {PAGE} {attributes}) -> {PAGE} {{
          {pagein("v", "w")}
          {negate("u", "v", "inplace [[0, 0]]")}
          {pageout("q", "u")}
          {free("u")}
          poet.return %q : {PAGE}
        }}""",
        "test.mlir",
    )
    run = run_graph(module, [X])
    assert run.results[0].tolist() == (-X).tolist()
    assert run.peak_bytes == 16


def test_recomputes_are_counted():
    run = run_graph(
        graph(
            negate("h", "x"),
            negate("g", "h"),
            free("h"),
            negate("h2", "x"),
            add("y", "g", "h2"),
            free("g"),
            free("h2"),
            free("x"),
        ),
        [X],
    )
    assert run.recomputes == 1
    assert run.results[0].tolist() == [0, 0, 0, 0]


def test_recompute_from_a_page_is_the_same_tensor():
    ops = (
        pageout("p", "x"),
        negate("h", "x"),
        free("x"),
        free("h"),
        pagein("x2", "p"),
        negate("y", "x2"),
        free("x2"),
    )
    assert run_graph(graph(*ops), [X]).recomputes == 1


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        (
            [negate("h", "x"), free("x"), add("y", "h", "x"), free("h")],
            '"add" uses %x, which is not in RAM: it was freed',
        ),
        (
            [negate("h", "x", "inplace [[0, 0]]"), add("y", "h", "x"), free("h")],
            '"add" uses %x, which is not in RAM: poet.compute "negate" took over its buffer',
        ),
        (
            [free("x"), free("x"), negate("y", "x")],
            "poet.free uses %x, which is not in RAM: it was freed",
        ),
        (
            [free("x"), pageout("p", "x"), pagein("y", "p")],
            "poet.pageout uses %x, which is not in RAM: it was freed",
        ),
        (
            [negate("y", "x"), free("y"), free("x")],
            "poet.return uses %y, which is not in RAM: it was freed",
        ),
        ([negate("h", "x"), negate("y", "h"), free("x")], "still in RAM at the end of @main: %h"),
    ],
)
def test_use_of_what_is_not_in_ram(ops, message):
    with pytest.raises(InterpreterError) as caught:
        run_graph(graph(*ops), [X])
    assert message in caught.value.message
    location = caught.value.location
    assert location is None or location.file == "test.mlir"


def test_arguments_must_match():
    with pytest.raises(InterpreterError, match=r"argument 0 of @main must be tensor<4xf32>"):
        run_graph(graph(negate("y", "x")), [np.zeros(4)])


def test_module_must_have_one_graph():
    with pytest.raises(InterpreterError, match="in the module, found 0"):
        run_graph(parse_module("func.func public @f() { func.return }", "test.mlir"), [])


# The arena

PLANNED = {"args": f"%x: {V} {{poet.offset = 0 : i64}}"}


def planned(*ops: str, arena: int = 48, storage: int = 0):
    attributes = f"attributes {{arena_bytes = {arena} : i64, storage_bytes = {storage} : i64}}"
    return graph(*ops, attributes=attributes, **PLANNED)


def chain(h: int, g: int, y: int):
    return planned(
        negate("h", "x", f"offsets [{h}]"),
        add("g", "h", "x", f"offsets [{g}]"),
        free("x"),
        add("y", "g", "h", f"offsets [{y}]"),
        free("g"),
        free("h"),
    )


def test_right_offsets_give_the_right_result():
    run = run_graph(chain(16, 32, 0), [X], arena=True)
    assert run.results[0].tolist() == [-1, -2, -3, -4]


@pytest.mark.parametrize(
    "offsets",
    [
        (0, 32, 16),  # %h over its own operand
        (16, 16, 0),  # %g over %h
        (16, 0, 32),  # %g over %x, its operand
        (16, 32, 28),  # %y over the end of %h and the start of %g
    ],
)
def test_overlapping_offsets_corrupt_the_result(offsets):
    run = run_graph(chain(*offsets), [X], arena=True)
    assert run.results[0].tolist() != [-1, -2, -3, -4]


def test_overlapping_workspace_corrupts_the_result():
    cost = "cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 16, flops = 4>"

    def with_workspace(offset: int):
        attributes = f"{cost} offsets [16] workspace_offset {offset}"
        return planned(negate("y", "x", attributes), free("x"))

    assert run_graph(with_workspace(32), [X], arena=True).results[0].tolist() == (-X).tolist()
    for offset in (0, 4, 16, 28):
        run = run_graph(with_workspace(offset), [X], arena=True)
        assert run.results[0].tolist() != (-X).tolist()


def test_offset_outside_the_arena():
    with pytest.raises(InterpreterError, match="%y: 16 bytes at offset 36 end outside the arena"):
        run_graph(chain(16, 32, 36), [X], arena=True)


def test_arena_needs_a_plan():
    with pytest.raises(InterpreterError, match="no memory plan"):
        run_graph(graph(negate("y", "x")), [X], arena=True)
    with pytest.raises(InterpreterError, match="%y has no offset in the arena"):
        run_graph(planned(negate("y", "x")), [X], arena=True)


def test_in_place_must_stay_in_place():
    ops = negate("h", "x", "inplace [[0, 0]] offsets [16]"), negate("y", "h", "offsets [0]")
    with pytest.raises(InterpreterError, match="%h at offset 16 is in place of %x at offset 0"):
        run_graph(planned(*ops), [X], arena=True)


def two_pages(first: int, second: int):
    return planned(
        pageout("p", "x", f"offset {first}"),
        negate("h", "x", "offsets [16]"),
        free("x"),
        pageout("q", "h", f"offset {second}"),
        free("h"),
        pagein("x2", "p", "offset 32"),
        pagein("h2", "q", "offset 0"),
        add("y", "x2", "h2", "offsets [16]"),
        free("x2"),
        free("h2"),
        storage=40,
    )


def test_pages_that_overlap_corrupt_each_other():
    assert run_graph(two_pages(0, 20), [X], arena=True).results[0].tolist() == [0] * 4
    for first, second in ((0, 8), (0, 16), (16, 0)):
        with pytest.raises(InterpreterError, match="the page %p in the storage is damaged"):
            run_graph(two_pages(first, second), [X], arena=True)
    with pytest.raises(InterpreterError, match="%q: 20 bytes at offset 24 end outside the storage"):
        run_graph(two_pages(0, 24), [X], arena=True)


def test_updated_parameter_must_stay_in_place():
    args = f'%x: {V} {{poet.role = "param", poet.updates = 0 : i64, poet.offset = 0 : i64}}'
    module = graph(
        negate("y", "x", "offsets [16]"),
        free("x"),
        args=args,
        attributes="attributes {arena_bytes = 32 : i64}",
    )
    with pytest.raises(InterpreterError, match="new value of %x but not in its place"):
        run_graph(module, [X], arena=True)


# Transfers in two halves

TO_PAGE, TO_TENSOR = f"!poet.transfer<{PAGE}>", f"!poet.transfer<{V}>"


def pageout_start(transfer: str, value: str, offset: str = "") -> str:
    return f"%{transfer} = poet.pageout_start %{value} {offset} : {V} -> {TO_PAGE}"


def pagein_start(transfer: str, page: str, offset: str = "") -> str:
    return f"%{transfer} = poet.pagein_start %{page} {offset} : {PAGE} -> {TO_TENSOR}"


def wait(result: str, transfer: str, inwards: bool) -> str:
    types = f"{TO_TENSOR} -> {V}" if inwards else f"{TO_PAGE} -> {PAGE}"
    return f"%{result} = poet.wait %{transfer} : {types}"


def test_split_transfers():
    """The page is being written while "h" is computed, and read while "g" is."""
    ops = (
        pageout_start("out", "x"), negate("h", "x"), wait("p", "out", False), free("x"),
        pagein_start("in", "p"), negate("g", "h"), free("h"), wait("x1", "in", True),
        add("y", "g", "x1"), free("g"), free("x1"),
    )  # fmt: skip
    run = run_graph(graph(*ops), [X])
    assert run.results[0].tolist() == [2, 4, 6, 8]
    assert run.peak_bytes == 48 and run.peak_at == 'poet.compute "negate"'
    assert (run.page_outs, run.page_ins, run.page_in_bytes) == (1, 1, 16)


def test_a_transfer_waits_for_those_before_it():
    ops = pageout_start("out", "x"), pageout("p2", "x"), wait("p", "out", False), negate("y", "x")
    message = r"pageout before the wait for poet\.pageout_start of %x"
    with pytest.raises(InterpreterError, match=message):
        run_graph(graph(*ops, free("x")), [X])


@pytest.mark.parametrize("offset", [16, 32])
def test_a_buffer_changes_while_it_is_moved(offset: int):
    """A kernel writes over what is being read, or over what is being written."""
    plan = "attributes {arena_bytes = 64 : i64, storage_bytes = 40 : i64}"
    arguments = f"%x: {V} {{poet.offset = 0 : i64}}"
    ops = (
        pageout("p", "x", "offset 0"),
        negate("z", "x", "offsets [32]"),
        pageout_start("out", "z", "offset 20"),
        pagein_start("in", "p", "offset 16"),
        add("g", "x", "x", f"offsets [{offset}]"),
        wait("p2", "out", False),
        wait("x1", "in", True),
        add("y", "g", "x1", "offsets [48]"),
        *map(free, ("g", "x1", "x", "z")),
    )
    name, kind = ("x1", "pagein") if offset == 16 else ("z", "pageout")
    with pytest.raises(InterpreterError, match=f"%{name} was overwritten .* poet.{kind}_start"):
        run_graph(graph(*ops, args=arguments, attributes=plan), [X], arena=True)
