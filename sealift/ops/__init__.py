"""The operator table. Importing this package reads every family's file and freezes the table."""

from sealift.ops import gemm, pointwise
from sealift.ops.table import TABLE

_FILES = (pointwise, gemm)

OPS = TABLE.freeze()
