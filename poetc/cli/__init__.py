"""The `poetc` command: one module a subcommand. Here are exit codes, and what ends the process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from poetc.cli import compile, devices, explain, image, profile, sweep
from poetc.errors import InputError, PoetcError
from poetc.ir.garbage import collect_less
from poetc.terminal import drop_output, flush, say

LEAVE_S = 0.5
"""Seconds that the end of the process waits for a solver that was left behind."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Without `argv` it is that of this process, which
    is to end then."""
    if argv is not None:
        return _main(list(argv))
    collect_less()
    status = _main(sys.argv[1:])
    # There is nothing left to interrupt; Python would print where it is in ending its threads.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    solver = sys.modules.get("poetc.schedule.exact.highs")
    if solver is not None and not solver.settle(LEAVE_S):
        # HiGHS does not look at the clock everywhere.
        flush()
        os._exit(status)
    return status


def _main(words: list[str]) -> int:
    try:
        match words:
            case ["pack" | "unpack" as command, *rest]:
                return image.run(command, image.build_parser(command).parse(rest))
            case ["profile", *rest]:
                return profile.run(profile.build_parser().parse(rest))
            case [devices.COMMAND, *rest]:
                return devices.run(devices.build_parser().parse(rest))
            case ["explain", *rest]:
                return explain.run(explain.build_parser().parse(rest))
            case [sweep.COMPARE | sweep.PARETO as command, *rest]:
                return sweep.run(command, sweep.build_parser(command).parse(rest))
            case _:
                return compile.run(compile.build_parser().parse(words))
    except PoetcError as error:
        say(f"poetc: error: {error}")
        return error.exit_code
    except BrokenPipeError:
        # The reader of stdout went away; nothing left to say there.
        drop_output()
        return 0
    except KeyboardInterrupt:
        say("poetc: interrupted")
        return 130
    except MemoryError:
        say("poetc: error: not enough memory for this input")
        return InputError.exit_code
    except RecursionError:
        say("poetc: error: the input is nested too deeply")
        return InputError.exit_code
    except Exception as error:
        if os.environ.get("POETC_TRACEBACK"):
            raise
        say(
            f"poetc: internal error: {type(error).__name__}: {error}\n"
            "This is a defect of poetc. With POETC_TRACEBACK=1 it shows where."
        )
        return PoetcError.exit_code
