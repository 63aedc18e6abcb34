"""The operator table. Importing this package reads every family's file and freezes the table."""

from sealift.ops import attention, casts, creation, gemm, indexing, norms, pointwise, reductions, scans, unary, views
from sealift.ops.table import TABLE

_FILES = (attention, casts, creation, gemm, indexing, norms, pointwise, reductions, scans, unary, views)

OPS = TABLE.freeze()
