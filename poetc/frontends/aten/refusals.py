"""Operators that are not lowered, the reason, and what to do instead."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

import torch

from poetc.frontends.aten.registry import aten

_RANDOM = (
    "random numbers; give export a seed (for dropout, uniform, normal and whole numbers), use p=0 "
    "for dropout, or eval() on that module, or give random numbers as an input"
)
_COMPLEX = (
    "complex numbers; compute the spectrum before the step and give it as an input, or multiply by "
    "matrices of cosines and sines"
)
VALUES = (
    "a number or a shape that depends on the values of tensors; keep the shape and use torch.where"
)
_NUMBER = "a number taken out of a tensor; keep it a tensor, or make it a constant"
_SIZE = "never in a step: sizes are those of the example, and constants"
_MATRICES = (
    "matrices are not factored; use operations of docs/coverage.md, or compute it before the step"
)
_OTHER = "not lowered; docs/coverage.md has the operations that are"

REFUSED: dict[Any, str] = {
    **dict.fromkeys((aten._fft_c2c, aten._fft_c2r, aten._fft_r2c, aten.complex), _COMPLEX),
    **dict.fromkeys(
        (
            aten.masked_select,
            aten.nonzero,
            aten.repeat_interleave.Tensor,
            aten._unique2,
            aten.unique_dim,
            aten.bincount,
        ),
        VALUES,
    ),
    aten._local_scalar_dense: _NUMBER,
    **dict.fromkeys(
        (
            aten.sym_is_contiguous,
            aten.sym_numel,
            aten.sym_size,
            aten.sym_storage_offset,
            aten.sym_stride,
        ),
        _SIZE,
    ),
    **dict.fromkeys(
        (
            aten._linalg_check_errors,
            aten._linalg_det,
            aten._linalg_eigh,
            aten._linalg_slogdet,
            aten._linalg_solve_ex,
            aten._linalg_svd,
            aten.linalg_cholesky_ex,
            aten.linalg_eig,
            aten.linalg_inv_ex,
            aten.linalg_lu_factor_ex,
            aten.linalg_qr,
            aten.linalg_solve_triangular,
        ),
        _MATRICES,
    ),
    aten.resize_: "a tensor whose memory becomes another; make a new one",
    aten._ctc_loss: (
        "the CTC loss; its loops run over lengths of targets (compute it from log-probabilities "
        "with torch.logsumexp over alignments, or train with frame-wise cross-entropy)"
    ),
}
"""Operator, or overload of one → the reason and the way out."""


def reason(target: Any) -> str:
    """Why an operator that has no lowering is refused, and what would work."""
    packet = getattr(target, "overloadpacket", None)
    found = REFUSED.get(target) or REFUSED.get(packet)
    if found:
        return found
    random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
    return _RANDOM if random else _OTHER
