"""Fills the examples of docs/architecture.md with what the pipeline prints for one small model. Run by `make golden`, held by tests."""

from __future__ import annotations

import re
from pathlib import Path

from sealift import pipeline
from sealift.backends.cpp.kernel import emit_kernels
from sealift.ir.graph.text import parse_graph
from sealift.ops import OPS
from sealift.options import Options
from sealift.passes.lower_to_loops import lower_to_loops
from sealift.plan.memory import plan_memory

PAGE = Path(__file__).with_name("architecture.md")
GRAPH = """graph norm(batch: 1..64)
  input %x: f32[batch, 64]
  parameter %w: f32[96, 64] = "proj.weight"
  parameter %b: f32[96] = "proj.bias"
{
  %linear: f32[batch, 96] = aten.linear.default(%x, %w, %b)  // model.py:12 proj
  %gelu: f32[batch, 96] = aten.gelu.default(%linear)  // model.py:12 act
  %softmax: f32[batch, 96] = aten._softmax.default(%gelu, dim=-1, half_to_float=false)  // model.py:13
  return output=%softmax
}
"""


def examples() -> dict[str, str]:
    """Marker -> what stands between it and the end of its fence."""
    graph = parse_graph(GRAPH, OPS)
    loops = pipeline.optimize(lower_to_loops(graph), pipeline.new_steps(Options()))
    plan = plan_memory(loops)
    kernels = emit_kernels(loops, plan)
    code = "\n\n".join([*kernels.functions, "// the run function\n" + "\n".join(kernels.steps)])
    return {
        "graph example": _fence("", str(graph).strip()),
        "loop example": _fence("", str(loops).strip()) + "\n\nThe memory plan:\n\n" + _fence("", str(plan)),
        "c++ example": _fence("cpp", code),
    }


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def filled(page: str) -> str:
    for marker, text in examples().items():
        block = f"<!-- {marker} -->\n{text}\n<!-- end of {marker} -->"
        pattern = rf"<!-- {re.escape(marker)} -->(\n.*?<!-- end of {re.escape(marker)} -->)?"
        page = re.sub(pattern, lambda _, block=block: block, page, count=1, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
