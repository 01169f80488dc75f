"""MISRA C:2012: the generated C has no violation but those that the document gives reasons for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks import misra

DOCUMENT = Path(__file__).parent.parent / "docs" / "misra.md"


@pytest.mark.slow
def test_no_rule_is_violated_without_a_reason(tmp_path: Path) -> None:
    step = "gesture_mlp, pages"
    violated = set(misra.violations(misra.emitted(step, tmp_path / "step")))
    # With pages a step has all the kinds of code that any has.
    assert violated == {*misra.DEVIATIONS}


def test_what_has_no_reason_and_what_is_kept_are_faults(tmp_path: Path) -> None:
    found = {"a step": Counter(misra.DEVIATIONS.keys() - {"15.1"}) + Counter(["21.3"])}
    assert misra.faults(found) == [
        "rule 21.3 is violated, and no reason is given",
        "rule 15.1 has a reason, and is kept",
    ]
    (tmp_path / "heap.c").write_text(
        "#include <stdlib.h>\nvoid *heap(void);\nvoid *heap(void)\n{\n    return malloc(4u);\n}\n"
    )
    assert "21.3" in misra.violations(tmp_path)


@pytest.mark.parametrize("rule", misra.DEVIATIONS)
def test_the_document_has_the_reasons(rule: str) -> None:
    category, asks, reason = misra.DEVIATIONS[rule]
    row = f"| {rule} | {category} | {asks} | "
    assert any(
        line.startswith(row) and line.endswith(f"| {reason} |")
        for line in DOCUMENT.read_text().splitlines()
    )
