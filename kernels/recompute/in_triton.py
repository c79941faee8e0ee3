"""All that is rebuilt, in Triton: the same names as `in_torch`, from one file for each kernel."""

from kernels.recompute.products import product
from kernels.recompute.rows_and_columns import columns, gradient_columns, gradient_rows, rows

__all__ = ["columns", "gradient_columns", "gradient_rows", "product", "rows"]
