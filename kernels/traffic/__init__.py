"""What a kernel moves through memory: by formula, counted at its loads and stores, measured by the GPU."""

from kernels.traffic.counted import counted, counting_seconds
from kernels.traffic.formula import compulsory, formula, law, stores_matrix
from kernels.traffic.ledger import DIRECTIONS, KernelTraffic, Traffic, TrafficError
from kernels.traffic.measured import measured, measured_all

__all__ = [
    "DIRECTIONS",
    "KernelTraffic",
    "Traffic",
    "TrafficError",
    "compulsory",
    "counted",
    "counting_seconds",
    "formula",
    "law",
    "measured",
    "measured_all",
    "stores_matrix",
]
