"""The operator table. Importing this package reads every family's file and freezes the table."""

from sealift.ops import (
    attention,
    casts,
    choice,
    convolution,
    creation,
    distances,
    gemm,
    indexing,
    norms,
    padding,
    pointwise,
    pooling,
    reductions,
    resampling,
    scans,
    scatter,
    sorting,
    unary,
    views,
)
from sealift.ops.table import TABLE

_FILES = (
    attention,
    casts,
    choice,
    convolution,
    creation,
    distances,
    gemm,
    indexing,
    norms,
    padding,
    pointwise,
    pooling,
    reductions,
    resampling,
    scans,
    scatter,
    sorting,
    unary,
    views,
)

OPS = TABLE.freeze()
