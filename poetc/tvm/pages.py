"""Where scheduled Relax functions keep pages: a file of each call, without a name, gone with it.

The functions are registered with TVM under the names that the Relax function calls, so `poetc.tvm`
must be imported where it runs. Bytes go between the file and the arena with no copy in between.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportReturnType=false
from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
import tvm
import tvm_ffi

from poetc.backends.tvm.stores import PageError
from poetc.page import PAGE_TRAILER_BYTES, page_trailer
from poetc.units import format_bytes

OPEN = "poetc.tvm.open_pages"
"""`open_pages(bytes) -> pages`, at the start of each call."""
OUT = "poetc.tvm.page_out"
IN = "poetc.tvm.page_in"
"""`page_out(pages, offset, tensor)` and `page_in(...)`; tensors are flat, of bytes."""

_directory: str | None = None


def set_page_directory(directory: str | os.PathLike[str] | None) -> None:
    """Where the files with pages are made from now on: by default, where temporary files are.

    That directory may be in RAM; pages belong on a disk, a memory card, or memory that is not
    scarce. Raises NotADirectoryError.
    """
    global _directory
    if directory is not None and not Path(directory).is_dir():
        raise NotADirectoryError(f"{os.fspath(directory)} is no directory")
    _directory = None if directory is None else os.fspath(directory)


class Pages:
    """The pages of one call of a function."""

    def __init__(self, bytes: int) -> None:
        """Raises PageError where there is no place for so many bytes."""
        try:
            # It is closed with this object, when TVM lets go of it.
            self._file: BinaryIO = tempfile.TemporaryFile(  # noqa: SIM115
                dir=_directory, prefix="poetc-", buffering=0
            )
            # A full disk shows here, not in the middle of a step.
            os.posix_fallocate(self._file.fileno(), 0, bytes)
        except OSError as error:
            where = _directory or "the directory of temporary files"
            raise PageError(
                f"no file for {format_bytes(bytes)} of pages in {where} "
                f"(poetc.tvm.set_page_directory): {error.strerror}"
            ) from error
        self.descriptor = self._file.fileno()

    def page_out(self, offset: int, content: memoryview) -> None:
        """Writes a page and its checksum."""
        for part in (content, memoryview(page_trailer(content))):
            while part:
                done = os.pwrite(self.descriptor, part, offset)
                offset, part = offset + done, part[done:]

    def page_in(self, offset: int, content: memoryview) -> None:
        """Reads a page. Raises PageError for one that is not what was written."""
        trailer = bytearray(PAGE_TRAILER_BYTES)
        wanted = len(content) + len(trailer)
        done = os.preadv(self.descriptor, [content, trailer], offset)
        if done != wanted or trailer != page_trailer(content):
            raise PageError(f"the page at {offset} is damaged, or was never written")


def _bytes(tensor: tvm.runtime.Tensor) -> memoryview:
    """The memory of a tensor, to read and write."""
    return memoryview(np.from_dlpack(tensor))


def _page_out(pages: Pages, offset: int, tensor: tvm.runtime.Tensor) -> None:
    pages.page_out(offset, _bytes(tensor))


def _page_in(pages: Pages, offset: int, tensor: tvm.runtime.Tensor) -> None:
    pages.page_in(offset, _bytes(tensor))


def register() -> None:
    """Gives TVM the functions that scheduled functions call."""
    tvm_ffi.register_error("PageError", PageError)
    for name, function in ((OPEN, Pages), (OUT, _page_out), (IN, _page_in)):
        tvm.register_global_func(name, function, override=True)
