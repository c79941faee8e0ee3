"""The default weights: a DINOv2 ViT-S/14 backbone inside an ONNX graph, taken out by its nodes' names.

The exporter kept the names of biases and norms but made the linear weights anonymous and transposed.
Each such weight enters exactly one MatMul node, whose own name is the module's path; the two parts
of the position table likewise enter one Concat (class) and one Reshape (patches).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vit.config import PRESETS
from vit.weights.checkpoint import Checkpoint, Progress, silent
from vit.weights.errors import WeightsError
from vit.weights.names import from_dinov2

ONNX_SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"
CONFIG = PRESETS["dinov2-small"]

PREFIX = "backbone."
CLASS_POSITION = re.compile(r"/backbone/embeddings/Concat(_\d+)?")
PATCH_POSITIONS = re.compile(r"/backbone/embeddings/Reshape(_\d+)?")


def recognises(path: Path) -> bool:
    """True for an ONNX file."""
    return path.suffix == ".onnx"


def read(path: Path, progress: Progress = silent) -> Checkpoint:
    """Read the one ONNX file whose layout is known; its sha256 is pinned.

    Raises:
        WeightsError: the file is not there, damaged, or another one.
    """
    progress(0.0, "Checking the packaged file.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WeightsError(
            f"{path} cannot be read ({error.strerror}); run `make weights`."
        ) from None
    if hashlib.sha256(content).hexdigest() != ONNX_SHA256:
        raise WeightsError(f"{path} is damaged or of another version; run `make weights`.")
    progress(0.2, "Reading the packaged file.")
    return Checkpoint(CONFIG, from_dinov2(named_tensors(content), CONFIG))


def named_tensors(content: bytes) -> dict[str, Tensor]:
    """The backbone's tensors under the names that its PyTorch module had."""
    import onnx  # slow to import, and needed for this one conversion only

    graph = onnx.load_model_from_string(content).graph
    stored = {initializer.name: initializer for initializer in graph.initializer}
    tensors = {name: value(stored[name]) for name in stored if name.startswith(PREFIX)}
    for node in graph.node:
        for source in node.input:
            name = module_name(node) if source in stored and source not in tensors else None
            if name is not None:
                tensor = value(stored[source])
                tensors[name] = tensor.T.contiguous() if node.op_type == "MatMul" else tensor
    class_position = tensors.pop("class_position")
    patch_positions = tensors.pop("patch_positions")
    tensors["backbone.embeddings.position_embeddings"] = torch.cat(
        [class_position, patch_positions], 1
    )
    return {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}


def module_name(node: Any) -> str | None:
    """The name for an anonymous tensor that enters this node, or None if it is not the backbone's."""
    if node.op_type == "MatMul" and node.name.startswith("/backbone/"):
        path = node.name.removeprefix("/").removesuffix("/MatMul")
        return path.replace("/", ".") + ".weight"
    if CLASS_POSITION.fullmatch(node.name):
        return "class_position"
    if PATCH_POSITIONS.fullmatch(node.name):
        return "patch_positions"
    return None


def value(initializer: Any) -> Tensor:
    """The stored numbers, copied out of the graph."""
    from onnx import numpy_helper

    return torch.from_numpy(numpy_helper.to_array(initializer).copy())
