"""poetc inside Apache TVM: schedules Relax training functions for a budget of RAM.

import poetc.tvm

mod = poetc.tvm.PoetSchedule(ram="64MB", functions=["main_adjoint"])(mod)
executable = tvm.compile(mod, "llvm", relax_pipeline="poetc")

Importing it needs TVM; the rest of poetc does not.
"""

from poetc.backends.tvm.requirement import require_tvm

require_tvm("poetc.tvm")

from poetc.tvm.pages import set_page_directory  # noqa: E402
from poetc.tvm.schedule import PoetSchedule, register, relax_pipeline  # noqa: E402

register()

__all__ = ["PoetSchedule", "relax_pipeline", "set_page_directory"]
