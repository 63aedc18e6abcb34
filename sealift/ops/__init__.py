"""The operator table. Importing this package reads every family's file and freezes the table."""

from sealift.ops import (  # noqa: F401 - for the rows that they add
    attention,
    bags,
    casts,
    choice,
    complex,
    control,
    convolution,
    creation,
    distances,
    fourier,
    gemm,
    indexing,
    norms,
    padding,
    pointwise,
    pooling,
    recurrent,
    reductions,
    resampling,
    scans,
    scatter,
    searching,
    sorting,
    unary,
    views,
)
from sealift.ops.table import TABLE

OPS = TABLE.freeze()
