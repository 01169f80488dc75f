"""Mutations of valid scheduled graphs are rejected; the messages themselves are tested with lit."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from random_poet import bytes_of, poet_graphs
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.errors import SourceLocation
from poetc.ir.poet import (
    ComputeOp,
    FreeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    ReturnOp,
    WaitOp,
    offset_of,
)
from poetc.ir.text import parse_module
from poetc.passes.poet_verify import verify_graph
from poetc.passes.poet_verify.messages import VerificationError

scheduled = poet_graphs("scheduled") | poet_graphs("planned")
# Many random graphs lack what a mutation needs.
check = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)


def rejected(graph: GraphOp, message: str) -> VerificationError:
    with pytest.raises(VerificationError, match=message) as error:
        verify_graph(graph)
    return error.value


def pick(data: st.DataObject, graph: GraphOp, *kinds: type[Operation]) -> Operation:
    ops = [op for op in graph.block.ops if isinstance(op, kinds)]
    assume(ops)
    return data.draw(st.sampled_from(ops))


@check
@given(poet_graphs("scheduled"))
def test_one_byte_less_than_needed(graph: GraphOp):
    verify_graph(graph)
    assert graph.ram is not None
    assume(graph.ram > 0)
    graph.attributes["ram"] = IntegerAttr(graph.ram - 1, i64)
    rejected(graph, f"needs {graph.ram + 1} bytes of RAM, the budget is {graph.ram}")


@check
@given(poet_graphs("planned"))
def test_one_byte_less_of_arena(graph: GraphOp):
    assert graph.arena_bytes is not None
    assume(graph.arena_bytes > 0)
    graph.attributes["arena_bytes"] = IntegerAttr(graph.arena_bytes - 1, i64)
    rejected(graph, f"ends past the arena of {graph.arena_bytes}")


@pytest.mark.slow
@check
@given(st.data())
def test_a_free_is_missing(data: st.DataObject):
    graph = data.draw(scheduled)
    Rewriter.erase_op(pick(data, graph, FreeOp))
    # The bytes that stay may break the budget or the arena before the end is reached.
    rejected(graph, "is never freed|bytes of RAM|overlaps")


@check
@given(st.data())
def test_a_free_is_doubled(data: st.DataObject):
    graph = data.draw(scheduled)
    free = pick(data, graph, FreeOp)
    assert isinstance(free, FreeOp)
    Rewriter.insert_op(FreeOp(free.tensor), InsertPoint.after(free))
    rejected(graph, "poet.free frees .* which was freed by poet.free")


@pytest.mark.slow
@check
@given(st.data())
def test_a_use_after_the_end(data: st.DataObject):
    graph = data.draw(scheduled)
    free = pick(data, graph, FreeOp)
    assert isinstance(free, FreeOp)
    users = [use.operation for use in free.tensor.uses if use.operation is not free]
    assume(users)
    free.detach()
    Rewriter.insert_op(free, InsertPoint.before(data.draw(st.sampled_from(users))))
    rejected(graph, "(uses|frees) .* which was freed by poet.free")


@pytest.mark.slow
@check
@given(st.data())
def test_an_operation_comes_too_early(data: st.DataObject):
    graph = data.draw(scheduled)
    op = pick(data, graph, ComputeOp, PageInOp)
    makers = [o.owner for o in op.operands if isinstance(o.owner, Operation)]
    assume(makers)
    op.detach()
    Rewriter.insert_op(op, InsertPoint.before(data.draw(st.sampled_from(makers))))
    # An operation that is moved so takes its memory earlier, too.
    rejected(graph, "before it is defined|not paged out before")


@check
@given(st.data())
def test_two_buffers_at_one_place(data: st.DataObject):
    graph = data.draw(poet_graphs("planned"))
    arguments = [a for a in graph.arguments if bytes_of(a.type)]
    assume(len(arguments) > 1)
    first, second = arguments[:2]
    graph.set_arg_attr(second.index, "poet.offset", IntegerAttr(offset_of(first) or 0, i64))
    rejected(graph, r"\(argument 1\) at offset .* overlaps .*\(argument 0\)")


@settings(check, max_examples=20)
@given(st.data())
def test_a_wait_comes_too_late(data: st.DataObject):
    graph = data.draw(poet_graphs("split"))
    wait = pick(data, graph, WaitOp)
    verify_graph(graph)
    # Behind what it is for: the first operation after it that is no wait.
    other = wait.next_op
    while isinstance(other, WaitOp):
        other = other.next_op
    assert other is not None
    assume(not isinstance(other, ReturnOp))
    wait.detach()
    Rewriter.insert_op(wait, InsertPoint.after(other))
    rejected(graph, "before it is waited for|is waited for$|which began first|at the end")


@settings(check, max_examples=20)
@given(st.data())
def test_a_wait_comes_before_the_start(data: st.DataObject):
    graph = data.draw(poet_graphs("split"))
    wait = pick(data, graph, WaitOp)
    assert isinstance(wait, WaitOp)
    wait.detach()
    Rewriter.insert_op(wait, InsertPoint.before(wait.start))
    rejected(graph, "poet.wait for .* which has not started")


PAGE_BYTES = {1: 8, 2: 8, 3: 8, 4: 8, 6: 12, 8: 12, 9: 16, 12: 16, 16: 20, 24: 28, 36: 40}
"""What the page of a tensor takes, written out: its bytes, a CRC of 4, whole words."""


def storage_works(graph: GraphOp) -> bool:
    """Does what the graph does to storage, byte by byte: whether each page that is read is what was
    written there."""
    assert graph.storage_bytes is not None
    owner: dict[int, SSAValue] = {}
    for op in graph.block.ops:
        if isinstance(op, PageOutOp | PageOutStartOp):
            at, size = offset_of(op.page), PAGE_BYTES[bytes_of(op.tensor.type)]
            assert at is not None
            if at < 0 or at % 4 or at + size > graph.storage_bytes:
                return False
            owner |= dict.fromkeys(range(at, at + size), op.page)
        elif isinstance(op, PageInOp | PageInStartOp):
            at, size = offset_of(op.page), PAGE_BYTES[bytes_of(op.tensor.type)]
            assert at is not None
            if any(owner[byte] is not op.page for byte in range(at, at + size)):
                return False
    return True


@pytest.mark.slow
@must_reach("accepted", "refused")
@settings(check, max_examples=60)
@given(st.data())
def test_pages_anywhere_in_storage(data: st.DataObject):
    """Accepted is what works, and nothing else."""
    graph = data.draw(poet_graphs("planned") | poet_graphs("split"))
    assert graph.storage_bytes is not None
    pages = [op for op in graph.block.ops if isinstance(op, PageOutOp | PageOutStartOp)]
    assume(pages)
    for op in pages:
        if data.draw(st.booleans()):
            place = data.draw(st.integers(-1, graph.storage_bytes // 4)) * 4
            op.offset = IntegerAttr(place + data.draw(st.sampled_from([0, 0, 0, 0, 2])), i64)
    less = data.draw(st.sampled_from([0, 0, 0, 1, 4]))
    graph.attributes["storage_bytes"] = IntegerAttr(graph.storage_bytes - less, i64)
    works = storage_works(graph)
    reached("accepted" if works else "refused")
    if works:
        verify_graph(graph)
    else:
        rejected(graph, "^the page .*(ends past the storage|overlaps|multiples of 4)")


def test_the_error_says_where():
    text = """poet.graph @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  poet.free %x : tensor<4xf32>
  %y = poet.compute "copy" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}
"""
    (graph,) = parse_module(text, "g.mlir").ops
    assert isinstance(graph, GraphOp)
    error = rejected(graph, "which was freed by poet.free at g.mlir:2:3$")
    assert error.location == SourceLocation("g.mlir", 3, 3)
