"""The words of the page Speed and memory."""

from __future__ import annotations

PAGE = {
    "title": "Speed and memory",
    "lead": (
        "How time, memory and bytes grow. Choose what grows, press Start, and watch the points come in."
    ),
}

SWEEP = {
    "over": "What grows",
    "tokens": "tokens",
    "batch": "batch",
    "heads": "heads",
    "head_dim": "head_dim",
    "upto": "Up to",
    "pixels": "{tokens:,} · {side} px",
    "upto_help": "Measured at {values}.",
    "fixed_tokens": "Tokens",
    "fixed_batch": "Batch",
    "fixed_heads": "Heads",
    "fixed_head_dim": "Head width",
    "dtype": "Numbers",
    "direction": "Pass",
    "forward": "forward",
    "backward": "backward",
    "forward+backward": "forward + backward",
    "causal": "Causal",
    "causal_help": "Each query sees the keys up to its own place only: half of the work.",
    "implementations": "Implementations",
    "not_here": "{name} (not here)",
    "hbm": "With HBM bytes",
    "hbm_help": (
        "Also reads the GPU's own counters, with a profiler in a second process. It takes longer."
    ),
    "try_anyway": "Try what will not fit",
    "try_anyway_help": (
        "What is forecast not to fit into memory is tried all the same. The app survives it."
    ),
    "missing": "What cannot run here",
    "missing_one": "**{name}**: {sentence}",
    "bad_link": "The link's {name} makes no sense here, so its default is taken.",
    "no_implementation": "Choose at least one implementation.",
}

RUN = {
    "start": "Start",
    "stop": "Stop",
    "before": (
        "Nothing is being measured. What is known already stands in the charts; charts that were "
        "recorded on a GPU are further down."
    ),
    "to_do": "{sizes} sizes × {names} implementations: {count} times and peaks to measure.",
    "bytes_only": "{sizes} sizes, bytes alone: none of these can be timed here.",
    "to_count": "Counting bytes takes about {seconds}.",
    "will_not_fit": "{name} from {at} on: {sentence}",
    "left_out": "It is left out.",
    "tried": "It is tried all the same.",
    "waiting_one": "Someone else is measuring. You are next.",
    "waiting": "{ahead} visitors are ahead of you. Your sweep waits in line.",
    "running": "Measuring",
    "stopped": "Stopped. What was measured until then is kept: {done} of {count} times.",
    "done": "Done. {done} of {count} times were measured; the table says why any other was not.",
    "failed": "The measurement broke off: {sentence}",
    "failed_unknown": "it gave no reason. Press Start to try again.",
    "other_settings": (
        "The charts show the sweep that is on its way; the choices above have changed since."
    ),
    "busy": "Other work ran on this machine meanwhile, so these times may be too long.",
}

CHART = {
    "time": "Time of one call",
    "rate": "Speed",
    "memory": "Peak memory",
    "traffic": "Bytes moved",
    "roofline": "Roofline",
    "time_about": "median; bars from lowest to highest",
    "rate_about": "4 · batch · heads · N² · head_dim operations a call",
    "rate_about_backward": "14 · batch · heads · N² · head_dim operations a call",
    "rate_causal": "{about}, halved: causal",
    "memory_about_allocator": "beyond the inputs, by torch's allocator",
    "memory_about_process": "beyond the inputs, by a process of its own",
    "memory_about": "beyond the inputs",
    "traffic_about_gpu": "measured: read and written in HBM; else asked for",
    "traffic_about_recorded": "HBM, read and written; caches cold, dotted: warm",
    "traffic_about": "read and written, as the kernel asks for it",
    "roofline_about": "near a roof the machine is well used",
    "line": "{name} · {source}",
    "recorded_about": "recorded on one {machine}<br>{about}",
    "law_square": "grows with N²",
    "law_linear": "grows with N",
    "law_linear_other": "grows in step",
    "tokens": "tokens (N)",
    "batch": "batch",
    "heads": "heads",
    "head_dim": "width of a head (head_dim)",
    "intensity": "FLOP for each byte moved",
    "memory_roof": "memory: {rate}/s · {source}",
    "compute_roof": "matrix product: {rate} · {source}",
    "not_run": "{name} · not run at {x}",
    "point": "{name} · {x} {over}",
    "time_point": "{time} ({low} to {high}), {samples} rounds, by {by}",
    "rate_point": "{rate}",
    "memory_point": "{bytes} at its peak, by {by}",
    "traffic_point": "{total}: {read} read, {written} written",
    "formula_point": "{total}, read and written",
    "roofline_point": "{rate} at {intensity} FLOP a byte<br>bytes: {source}",
    "busy": "other work ran meanwhile",
    "empty": "not measured yet",
    "not_recorded": "bytes were not recorded for this",
    "formula": "formula",
    "counted": "counted",
    "measured": "measured",
    "recorded": "recorded",
    "cold": "{source} cold",
    "warm": "{source} warm",
    "compulsory": "formula",
    "by_graph": "replay of a CUDA graph",
    "by_events": "events around each launch",
    "by_benchmark": "torch's benchmark",
    "by_allocator": "the allocator",
    "by_process": "its process",
    "alt_time": "Time of one call over {over}, a line for each implementation.",
    "alt_rate": "Operations a second over {over}, a line for each implementation.",
    "alt_memory": "Peak memory over {over}, a line for each implementation.",
    "alt_traffic": "Bytes moved over {over}, a line for each implementation and source.",
    "alt_roofline": "Operations a second over operations a byte, under this machine's two roofs.",
}

HOW = {
    "png": "The camera at the top right of a chart saves it as a PNG.",
    "laws": "Thin grey lines are laws, drawn from the first point: what grows with N² and what with N.",
    "crosses": "A cross at the top marks where something could not be run; point at it for the reason.",
    "cpu_bytes": (
        "There is no GPU here, so no HBM to read counters of. The bytes are those that the kernels ask "
        "for, by formula and counted at their own loads and stores, fa3's at those of its plain Triton "
        "twin; a GPU's caches serve part of them."
    ),
    "gpu_bytes": (
        "HBM bytes by this GPU's own counters: cold, each kernel with empty caches; warm, back to back. "
        "Formula and counted bytes are what the kernel asks for; caches serve part of them."
    ),
    "roofline": "A marker grows with what grows. Left of the ridge memory is the limit, right of it arithmetic.",
    "roofline_cpu": (
        "Bytes by formula, each tensor once (eager: with its N × N matrix); a CPU's own traffic is not "
        "measured."
    ),
    "roofline_gpu": (
        "Bytes by the GPU's counters, cold, where they were read; else by formula, each tensor once: "
        "open markers."
    ),
    "roofline_formula": "Bytes by formula, each tensor once (eager and naive: with their N × N matrices).",
    "no_roofs_recorded": "That machine's roofs are not recorded.",
    "no_roofs_live": "The roofs come with the first sweep: a large copy and a large matrix product.",
}

TABLE = {
    "csv": "Table (CSV)",
    "none": "–",
    "csv_help": "This table, with machine, versions and date.",
    "implementation": "implementation",
    "direction": "pass",
    "batch": "batch",
    "heads": "heads",
    "tokens": "tokens",
    "head_dim": "head_dim",
    "dtype": "numbers",
    "causal": "causal",
    "time_us": "time (µs)",
    "time_low_us": "lowest (µs)",
    "time_high_us": "highest (µs)",
    "samples": "rounds",
    "time_source": "time: source",
    "tflops": "TFLOP/s",
    "peak_mb": "peak memory (MB)",
    "peak_source": "peak memory: source",
    "formula_mb": "bytes, formula (MB)",
    "counted_mb": "bytes, counted (MB)",
    "cold_read_mb": "HBM cold, read (MB)",
    "cold_written_mb": "HBM cold, written (MB)",
    "warm_read_mb": "HBM warm, read (MB)",
    "warm_written_mb": "HBM warm, written (MB)",
    "l2_mb": "asked of L2 (MB)",
    "bytes_source": "HBM and L2: source",
    "energy_mj": "energy (mJ)",
    "busy": "other work meanwhile",
    "refused": "what could not be had, and why",
    "machine": "machine",
    "versions": "versions",
    "when": "date",
    "by": "{source}, {by}",
}

RECORDED = {
    "title": "Recorded on one {machine}",
    "about": "Not this machine: {versions}; {when}.",
    "none": "There is no recorded run in this copy of the program.",
    "direction": "Pass",
    "what": "Batch {batch}, {heads} heads, head_dim {head_dim}, {dtype}.",
}
