"""Operations that end and begin live ranges in RAM: frees, and transfers to storage and back."""

from __future__ import annotations

from xdsl.dialects.builtin import I64, IntegerAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryFreeEffect
from xdsl.utils.exceptions import VerifyException

from poetc.ir.poet.attributes import (
    AllocatesResults,
    InGraph,
    PageType,
    TransferType,
    i64_or_none,
    int_or_none,
    verify_offset,
)


class _Transfer(IRDLOperation):
    """A copy between RAM and auxiliary storage."""

    offset = opt_prop_def(IntegerAttr[I64])

    traits = traits_def(InGraph(), AllocatesResults())

    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, source: SSAValue, result: Attribute, offset: int | None) -> None:
        properties = {"offset": i64_or_none(offset)}
        super().__init__(operands=[source], result_types=[result], properties=properties)

    def _verify_types(self, page: Attribute, tensor: Attribute) -> None:
        if not isinstance(page, PageType) or page.tensor != tensor:
            raise VerifyException(
                f"{self.name} between a tensor of type {tensor} and a page {page}"
            )
        verify_offset(int_or_none(self.offset), f"{self.name}: offset")


class _Start(_Transfer):
    """The first half of a transfer, the second of which is a `poet.wait`."""

    @property
    def wait(self) -> WaitOp:
        """The operation that waits for this one."""
        (use,) = self.results[0].uses
        assert isinstance(use.operation, WaitOp)
        return use.operation

    def _verify_wait(self) -> None:
        """A transfer that is never waited for, or twice, has no end."""
        waits = [use.operation for use in self.results[0].uses]
        if len(waits) != 1 or not isinstance(waits[0], WaitOp):
            raise VerifyException(f"{self.name} must be waited for once, by a poet.wait")


@irdl_op_definition
class PageOutOp(_Transfer):
    """Copies a tensor from RAM to auxiliary storage; its live range goes on.

    `offset` is the place of the page in auxiliary storage in bytes.
    """

    name = "poet.pageout"

    tensor = operand_def(TensorType)
    page = result_def(PageType)

    assembly_format = "$tensor (`offset` $offset^)? attr-dict `:` type($tensor) `->` type($page)"

    def __init__(self, tensor: SSAValue, offset: int | None = None) -> None:
        assert isinstance(tensor.type, TensorType)
        super().__init__(tensor, PageType(tensor.type), offset)

    def verify_(self) -> None:
        self._verify_types(self.page.type, self.tensor.type)


@irdl_op_definition
class PageInOp(_Transfer):
    """Copies a page from auxiliary storage into RAM; the page stays as it is.

    `offset` is the place of the tensor in the arena in bytes.
    """

    name = "poet.pagein"

    page = operand_def(PageType)
    tensor = result_def(TensorType)

    assembly_format = "$page (`offset` $offset^)? attr-dict `:` type($page) `->` type($tensor)"

    def __init__(self, page: SSAValue, offset: int | None = None) -> None:
        assert isinstance(page.type, PageType)
        super().__init__(page, page.type.tensor, offset)

    def verify_(self) -> None:
        self._verify_types(self.page.type, self.tensor.type)


@irdl_op_definition
class PageOutStartOp(_Start):
    """Begins to copy a tensor from RAM to auxiliary storage.

    Until the transfer has been waited for, the tensor may be read but its live range may not end.
    `offset` is the place of the page in auxiliary storage in bytes.
    """

    name = "poet.pageout_start"

    tensor = operand_def(TensorType)
    transfer = result_def(TransferType)

    assembly_format = (
        "$tensor (`offset` $offset^)? attr-dict `:` type($tensor) `->` type($transfer)"
    )

    def __init__(self, tensor: SSAValue, offset: int | None = None) -> None:
        assert isinstance(tensor.type, TensorType)
        super().__init__(tensor, TransferType(PageType(tensor.type)), offset)

    @property
    def page(self) -> SSAValue:
        """The page that is written: it is there from the wait on."""
        return self.wait.result

    def verify_(self) -> None:
        self._verify_wait()
        self._verify_types(self.page.type, self.tensor.type)


@irdl_op_definition
class PageInStartOp(_Start):
    """Begins to copy a page from auxiliary storage into RAM; the page stays as it is.

    The tensor takes its place in RAM at once, but has its content from the wait on. `offset` is
    that place in the arena in bytes.
    """

    name = "poet.pagein_start"

    page = operand_def(PageType)
    transfer = result_def(TransferType)

    assembly_format = "$page (`offset` $offset^)? attr-dict `:` type($page) `->` type($transfer)"

    def __init__(self, page: SSAValue, offset: int | None = None) -> None:
        assert isinstance(page.type, PageType)
        super().__init__(page, TransferType(page.type.tensor), offset)

    @property
    def tensor(self) -> SSAValue:
        """The tensor that is read: it may be used from the wait on."""
        return self.wait.result

    def verify_(self) -> None:
        self._verify_wait()
        self._verify_types(self.page.type, self.tensor.type)


@irdl_op_definition
class WaitOp(IRDLOperation):
    """Returns when a transfer that was started is over; its result is what was transferred.

    There is one bus: transfers run in the order of their starts, and are waited for in that order.
    """

    name = "poet.wait"

    transfer = operand_def(TransferType)
    result = result_def(AnyAttr())

    traits = traits_def(InGraph())

    assembly_format = "$transfer attr-dict `:` type($transfer) `->` type($result)"

    def __init__(self, transfer: SSAValue) -> None:
        assert isinstance(transfer.type, TransferType)
        super().__init__(operands=[transfer], result_types=[transfer.type.content])

    @property
    def start(self) -> PageOutStartOp | PageInStartOp:
        """The operation that started the transfer."""
        owner = self.transfer.owner
        assert isinstance(owner, PageOutStartOp | PageInStartOp)
        return owner

    def verify_(self) -> None:
        if not isinstance(self.transfer.owner, PageOutStartOp | PageInStartOp):
            raise VerifyException("poet.wait for something that is no transfer of this graph")
        assert isinstance(self.transfer.type, TransferType)
        if self.transfer.type.content != self.result.type:
            raise VerifyException(
                f"poet.wait for a transfer of {self.transfer.type.content} "
                f"has a result of type {self.result.type}"
            )


AnyPageOut = PageOutOp | PageOutStartOp
"""An operation that writes `.tensor` to storage as `.page`."""

AnyPageIn = PageInOp | PageInStartOp
"""An operation that reads `.page` back as `.tensor`."""


def transfer_of(value: SSAValue) -> AnyPageOut | AnyPageIn | None:
    """The transfer that makes `value`, a page or a tensor paged in; None for any other value."""
    match value.owner:
        case PageOutOp() | PageInOp() as transfer:
            return transfer
        case WaitOp() as wait:
            return wait.start
        case _:
            return None


@irdl_op_definition
class FreeOp(IRDLOperation):
    """Ends the live range of a tensor."""

    name = "poet.free"

    tensor = operand_def(TensorType)

    traits = traits_def(InGraph(), MemoryFreeEffect())

    assembly_format = "$tensor attr-dict `:` type($tensor)"

    def __init__(self, tensor: SSAValue) -> None:
        super().__init__(operands=[tensor])
