"""What the command line asks for, as a request."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from poetc.cli.arguments import value
from poetc.errors import InputError
from poetc.options import SEARCH, default
from poetc.terminal import warn

if TYPE_CHECKING:
    from poetc.request import Options
    from poetc.splits import Split


def options_of(arguments: argparse.Namespace) -> Options:
    """The request, of what is given and of defaults. Raises InputError for what contradicts."""
    from poetc.backends.c.boards import check_ram, load_board
    from poetc.backends.c.libraries import load_layout
    from poetc.costmodel.device import device_of
    from poetc.request import Options

    ram_bytes = value(arguments, "ram")
    ram_scope = value(arguments, "ram_scope")
    if ram_bytes is not None:
        bare = arguments.ram.strip().isdigit() and ram_scope == "all"
        if bare and ram_bytes < 1024:
            warn(f"--ram={arguments.ram} is {ram_bytes} bytes; did you mean {arguments.ram}KB?")
    board = load_board(arguments.board)
    stack_bytes, stack_compiler = default("stack"), None
    if arguments.stack == "measure":
        from poetc.backends.c.stack import find_compiler

        known = None if board is None else board.compiler
        stack_compiler = find_compiler(known if arguments.cc is None else arguments.cc)
    elif arguments.cc is not None:
        raise InputError("--cc is the compiler that --stack=measure runs; give that, too")
    else:
        stack_bytes = value(arguments, "stack")
    deadline = value(arguments, "deadline")
    search = {field: value(arguments, option) for field, option in SEARCH.items()}
    device = device_of(arguments.device, arguments.profile, default("device"))
    device_name = value(arguments, "device")
    if arguments.device is None and device.profile is not None:
        device_name = device.profile.device_name
    profile = device.profile
    if board is not None and profile is not None and profile.board != board.name:
        raise InputError(
            f"profile {arguments.profile} is of board {profile.board}, not of --board={board.name}"
        )
    layout = load_layout(value(arguments, "layout"))
    static_bytes = layout.static_bytes if board is None else board.static_bytes
    if arguments.static is not None:
        static_bytes = value(arguments, "static")
    if board is not None:
        if ram_bytes is None:
            ram_bytes = board.ram_bytes
        elif ram_scope == "all":
            check_ram(board, ram_bytes)
    elif ram_bytes is not None and ram_bytes > device.ram_bytes:
        warn(f"--ram={arguments.ram} is more than the {device.ram_bytes:,} bytes of {device.name}")
    return Options(
        device=device,
        device_name=device_name,
        ram_bytes=ram_bytes,
        deadline=deadline,
        static_bytes=static_bytes,
        stack_bytes=stack_bytes,
        params=value(arguments, "params"),
        stack_compiler=stack_compiler,
        io=arguments.io,
        frozen=value(arguments, "frozen"),
        train=value(arguments, "train"),
        split=_split(value(arguments, "split")),
        board=board,
        **search,
    )


def _split(text: str) -> tuple[Split, ...] | str:
    from poetc.splits import parse_splits

    return text if text in ("off", "auto") else parse_splits(text)
