"""Switched off, what a walk needs leaves no trace: the compiler gives the same code with its lines cut out.

Nothing runs; a machine without a GPU is enough.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import kernels
from kernels.trace import BROKEN
from kernels.triton_mode import environment_that_compiles

HOME = Path(kernels.__file__).parent
SWITCHED = [
    "tiles.py",
    "fa1/forward.py",
    "fa2/forward.py",
    "fa2/backward_queries.py",
    "naive/forward.py",
    "naive/products.py",
]
"""Where the switch stands."""

SWITCH = {"trace", "BROKEN"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton comes with Linux only"
    ),
]

WORKER = """
import json, re, sys
import triton
import torch
from triton.runtime.jit import JITFunction
from kernels import compiled
from kernels.problem import Problem
from kernels.tile_sizes import Tiles, with_tiles

found, label, compile_or_launch = {}, "", JITFunction.run

def only_compile(kernel, *args, grid, warmup, **options):
    ptx = compile_or_launch(kernel, *args, grid=grid, warmup=True, **options).asm["ptx"]
    code = [line for line in ptx.split(".section")[0].splitlines() if line.strip()]
    # Where a line of code stands in its file is no code.
    code = [line for line in code if not re.match(r"\\s*(\\.loc|\\.file|//|\\$L__tmp)", line)]
    found[f"{label} {kernel.fn.__name__}"] = "\\n".join(code)

JITFunction.run = only_compile
for launch in json.loads(sys.argv[1]):
    name, what, architecture, causal, traced, broken = launch
    label = " ".join(map(str, launch))
    if traced is None:
        problem = Problem(1, 2, 197, 197, 64, "float16", causal)
        compiled.launch(compiled.Request(name, problem, architecture, what))
        continue
    from kernels.fa3 import twin
    from kernels.trace import launches, walker
    from kernels.trace.cut import Cut
    if broken == "renewed":
        twin.MOST_RISE, broken = 0.0, None
    from triton.runtime import driver
    driver.set_active(compiled.AbsentGPU(architecture))
    q = torch.zeros(197, 64, dtype=torch.float16)
    cut = Cut.of(q, q, q, name, 1, Tiles(64, 64, 4, 1), 0.125, causal)
    with with_tiles(cut.tiles):
        walker.run(cut, broken, q[64:128] if name == "fa2-backward" else None)
print(json.dumps(found))
"""

OFF = [
    (name, what, architecture, causal, None, None)
    for architecture in ("sm_90", "sm_80")
    for name in ("naive", "fa1", "fa2")
    for what in ("forward", "backward")
    for causal in (False, True)
]
"""What runs every day: implementation, pass, architecture, causal, traced, broken."""

ON = [
    (name, "forward", "sm_90", causal, True, broken)
    for name in ("naive", "fa1", "fa2", "fa3", "fa2-backward")
    for causal in (False, True)
    for broken in (None, *[one.name for one in BROKEN.values() if name in one.applies_to])
]
ON += [("fa3", "forward", "sm_90", causal, True, "renewed") for causal in (False, True)]
"""What a walk runs. fa3's mistakes are made where every maximum is renewed."""


def compiled(tree: Path, launches: list) -> dict[str, str]:
    """Each launch's kernels in the `kernels` package under `tree`, as PTX."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, json.dumps(launches)],
        capture_output=True,
        text=True,
        check=False,
        env={**environment_that_compiles(), "PYTHONPATH": str(tree)},
        cwd=tree,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@cache
def off() -> dict[str, str]:
    return compiled(HOME.parent, OFF)


class CutOut(ast.NodeTransformer):
    """Device code as if there were no switch: not its arguments, and not what it decides."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if not any("triton.jit" in ast.unparse(one) for one in node.decorator_list):
            self.generic_visit(node)
            return node
        names = [one.arg for one in node.args.args]
        first = len(names) - len(node.args.defaults)
        node.args.defaults = [
            default
            for n, default in enumerate(node.args.defaults)
            if names[first + n] not in SWITCH
        ]
        node.args.args = [one for one in node.args.args if one.arg not in SWITCH]
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        asked = ast.unparse(node.test)
        self.generic_visit(node)
        if asked.startswith(("BROKEN ==", "trace is not None")):
            return node.orelse
        return node.body if asked.startswith("BROKEN !=") else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return ast.Constant(True) if "BROKEN !=" in ast.unparse(node) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node.func) == "queries_of_whole":
            return node.args[0]
        self.generic_visit(node)
        is_launch = isinstance(node.func, ast.Subscript) or ast.unparse(node.func) == "launch"
        node.args = [one for one in node.args if not is_switch(one)]
        node.keywords = [one for one in node.keywords if not (is_launch and one.arg in SWITCH)]
        return node


def is_switch(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in SWITCH


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without the switch, in a folder."""
    tree = tmp_path_factory.mktemp("without")
    shutil.copytree(HOME, tree / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    for file in SWITCHED:
        path = tree / "kernels" / file
        cut = ast.unparse(ast.fix_missing_locations(CutOut().visit(ast.parse(path.read_text()))))
        if file != "tiles.py":  # which has the writers themselves
            assert "write_step(" not in cut
            assert "write_columns(" not in cut
        assert "BROKEN ==" not in cut
        path.write_text(cut)
    return tree


def test_off_is_the_kernel_without_the_switch(without):
    """Every kernel of ours, forward and backward, to the last instruction."""
    with_switch, cut = off(), compiled(without, OFF)
    assert len(cut) >= len(OFF)
    assert all(
        "wgmma" in code or "mma.sync" in code
        for name, code in cut.items()
        if "fa" in name and "delta" not in name
    )
    assert with_switch.keys() == cut.keys()
    assert not [name for name in cut if with_switch[name] != cut[name]]


def test_on_is_another_kernel():
    """Each mistake too, so the comparison above can fail; and all of them compile for a GPU."""
    on = compiled(HOME.parent, ON)
    for name in ("naive", "fa1", "fa2", "fa3"):
        for causal in (False, True):
            mine = {
                label: code
                for label, code in on.items()
                if label.startswith(f"{name} forward sm_90 {causal} ")
            }
            names = {label.split()[5] for label in mine}
            right = "renewed" if name == "fa3" else "None"
            mistakes = [b.name for b in BROKEN.values() if name in b.applies_to]
            assert names == {"None", right, *mistakes}
            by_mistake: dict[str, str] = {}
            for label, code in mine.items():
                broken = label.split()[5]
                by_mistake[broken] = by_mistake.get(broken, "") + code
            same = [mistake for mistake in mistakes if by_mistake[mistake] == by_mistake[right]]
            # Under a causal mask the diagonal hides the tail, so there is nothing to leave out.
            assert same == (["tail-not-masked"] if causal else [])


def test_a_changed_kernel_is_found_out(without):
    """The rescaling left out of the copy: what is compared is what computes."""
    path = without / "kernels" / "fa2" / "forward.py"
    before = path.read_text()
    path.write_text(before.replace("accumulator = accumulator * rescale[:, None]", "pass"))
    assert path.read_text() != before
    one = [("fa2", "forward", "sm_90", False, None, None)]
    try:
        [(label, code)] = compiled(without, one).items()
    finally:
        path.write_text(before)
    assert code != off()[label]


def test_the_worker_compiles_what_it_is_told_to(without):
    """The two trees are two: Python takes the package from the folder that was asked for."""
    shown = subprocess.run(
        [sys.executable, "-c", "import kernels; print(kernels.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(without)},
        cwd=without,
    )
    assert Path(shown.stdout.strip()).is_relative_to(without)
