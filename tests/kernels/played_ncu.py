"""NVIDIA's profiler, played: a program named `ncu` that answers as the real one does, in a scene of our choice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HEADER = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "CC"]
UNITS = {"dram": "byte", "l1te": "byte", "lts_": "sector", "gpu_": "ns"}
COPIED = 2**30

# name: DRAM bytes read and written, bytes asked of L2 and sent to it, sectors looked up, nanoseconds
KERNELS = {
    "flashlens_marker": (32, 0, 32, 32, 1, 900),
    "flashlens_copy": (COPIED + 2**21, COPIED - 2**22, COPIED, COPIED, 33_554_432, 600_000),
    "forward_kernel": (12_700_000, 1_234, 160_000_000, 1_920_000, 2_500_000, 111_000),
    "void at::native::elementwise<float, int (*)(int), 4>(int, T2, T3)": (
        1000,
        2000,
        320,
        640,
        10,
        5000,
    ),
}
WORK = list(KERNELS)[2:]
PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
    "Counters on the target device 0."
)
BUSY = (
    "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool "
    "(like DCGM) is concurrently collecting profiling data."
)
LIBRARY = "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"
OLD = "==ERROR== Cuda driver is not compatible with Nsight Compute."
NOTHING = "==WARNING== No kernels were profiled."
LAST = {"done": True}


def install(folder: Path) -> None:
    """Make the program in this folder, which goes first on PATH."""
    program = folder / "ncu"
    root = Path(__file__).parents[2]
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        "sys.path.insert(0, str(__import__('pathlib').Path(sys.path[0]) / 'tests' / 'kernels'))\n"
        "import played_ncu\nplayed_ncu.main()\n"
    )
    program.chmod(0o755)


def main() -> None:
    """Play the scene that PLAYED_NCU names; write down in PLAYED_LOG when, and with which arguments."""
    if sys.argv[1:] == ["--version"]:
        say("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 36398880)")
        return
    options, child = arguments()
    requests = json.loads(Path(child[-1]).read_text())["requests"]
    scene = os.environ.get("PLAYED_NCU", "")
    note("start", options, child)
    time.sleep(float(os.environ.get("PLAYED_SECONDS", "0")))
    play(scene, Path(options["--log-file"]), options, requests)
    note("end", options, child)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def arguments() -> tuple[dict[str, str], list[str]]:
    """ncu's options, and the command to watch."""
    place = sys.argv.index(next(a for a in sys.argv[1:] if "python" in a))
    mine = [a for a in sys.argv[1:place] if a != "--csv"]
    return dict(zip(mine[::2], mine[1::2], strict=True)), sys.argv[place:]


def note(event: str, options: dict[str, str], child: list[str]) -> None:
    line = {
        "event": event,
        "pid": os.getpid(),
        "at": time.monotonic(),
        "options": options,
        "child": child,
        "interpreted": "TRITON_INTERPRET" in os.environ,
    }
    with Path(os.environ["PLAYED_LOG"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def play(scene: str, log: Path, options: dict[str, str], requests: list) -> None:
    metrics = options["--metrics"].split(",")
    if scene in ("permission", "busy", "library", "old"):
        said = {"permission": PERMISSION, "busy": BUSY, "library": LIBRARY, "old": OLD}[scene]
        log.write_text(f"==PROF== Connected to process 1\n{said}\n{NOTHING}\n")
        answer(requests)
    elif scene == "nothing":
        log.write_text(NOTHING)
        answer(requests)
    elif scene == "slow":
        family()
        time.sleep(600)
    elif scene == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif scene == "garbage":
        log.write_text('\x00\x01{"ID"')
        answer(requests)
    elif scene == "short of memory":
        sys.stderr.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate")
        sys.exit(1)
    elif scene == "crash":
        sys.stderr.write("Traceback ...\nImportError: no such thing")
        sys.exit(1)
    else:
        answer(requests, out_of_memory="naive" if scene == "naive runs out" else None)
        done = [r for r in requests if scene != "naive runs out" or r[1] != "naive"]
        kernels = ["flashlens_marker", "flashlens_copy"]
        kernels += ["flashlens_marker", *WORK] * (0 if scene == "too few" else len(done))
        single = scene == "one pass" or len(metrics) == 3
        log.write_text(table(kernels, metrics, scene, 1 if single else 2))


def answer(requests: list, out_of_memory: str | None = None) -> None:
    """What the replay prints."""
    say("a library says something")
    say(json.dumps({"calibration": COPIED, "marker": 0}))
    marker = 0
    for number, (_, implementation, _) in enumerate(requests):
        if implementation == out_of_memory:
            fault = {"cause": "out of memory", "sentence": f"{implementation} ran out of memory."}
            say(json.dumps({"request": number} | fault))
            continue
        marker += 1
        say(json.dumps({"request": number, "marker": marker}))
    say(json.dumps(LAST))


def table(kernels: list[str], metrics: list[str], scene: str = "", passes: int = 1) -> str:
    """`--csv --page raw`, with ncu's own lines before and between."""
    order = ["dram__bytes_read.sum", "dram__bytes_write.sum"]
    order += ["l1tex__m_xbar2l1tex_read_bytes.sum", "l1tex__m_l1tex2xbar_write_bytes.sum"]
    order += ["lts__t_sectors_srcunit_tex_op_read.sum", "gpu__time_duration.sum"]
    units = [UNITS[name[:4]] for name in metrics]
    if scene == "other units":
        units[0] = "Mbyte"
    lines = ["==PROF== Connected to process 1234 (/usr/bin/python3.12)"]
    lines += ["==PROF== Disconnected from process 1234"]
    lines += [cells([*HEADER, *metrics, "profiler__replayer_passes"])]
    lines += [cells([*[""] * len(HEADER), *units, "pass"])]
    for number, kernel in enumerate(kernels):
        figures = dict(zip(order, KERNELS[kernel], strict=True))
        if scene == "small copy" and kernel == "flashlens_copy":
            figures[order[1]] = COPIED * 9 // 10
        values = [f"{figures[name]:,}" for name in metrics]
        values = [str(number), "1234", "python3.12", "host", kernel, "1", "9.0", *values]
        lines += [cells([*values, str(passes)])]
    return "\n".join(lines) + "\n"


def cells(values: list[str]) -> str:
    return ",".join(f'"{value}"' for value in values)


def family() -> None:
    """A child, a grandchild, and one in a session of its own; their ids go into PLAYED_PIDS."""
    sleep = "import time; time.sleep(600)"
    pair = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {sleep!r}]).pid, flush=True); {sleep}"
    parent = subprocess.Popen([sys.executable, "-c", pair], stdout=subprocess.PIPE, text=True)
    apart = subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True)
    assert parent.stdout is not None
    pids = [os.getpid(), parent.pid, int(parent.stdout.readline()), apart.pid]
    Path(os.environ["PLAYED_PIDS"]).write_text(json.dumps(pids))
