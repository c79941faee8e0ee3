"""The words of the side panel."""

from __future__ import annotations

PANEL = {
    "title": "What this costs",
    "subject": "{tokens} tokens · {heads} heads · {dtype}",
    "layer": "One layer's attention, on {device}.",
    "measure": "Measure now",
    "measure_help": "Runs one layer's attention of this size on random numbers, here and now.",
    "stop": "Stop",
    "try": "Try it anyway",
    "try_help": (
        "Runs it although it is predicted not to fit. The app survives it; whatever else runs on "
        "this machine may get slow meanwhile."
    ),
    "compare": "Compare",
    "compare_label": "Implementations, two or more",
}

ROW = {
    "hbm": "HBM traffic",
    "time": "Time",
    "memory": "Peak memory",
    "asked": "bytes that the kernels ask for; a GPU's L2 serves part of them",
    "cold": "each kernel cold: caches emptied before it",
    "warm": "back to back: caches as the kernel before left them",
    "average": "on average over a second of calls, back to back; no counters could be read",
    "memory_caption": "beyond the inputs",
    "unmeasured": "not measured yet",
    "measuring": "being measured",
    "none": "none",
    "energy": "Energy of one call, measured: {amounts}.",
    "energy_one": "{name} {amount} mJ",
}

TAG = {
    "formula": "formula",
    "counted": "counted",
    "measured": "measured",
    "recorded": "recorded",
    "formula_how": "Worked out from the kernel's loops: what their loads and stores ask for.",
    "counted_how": "Counted at the loads and stores of the real kernel, in Triton's interpreter.",
    "counted_twin": (
        "Counted at the loads and stores of its plain Triton twin, in Triton's interpreter: the kernel "
        "itself runs on a Hopper GPU only."
    ),
    "cold_how": "DRAM counters of the GPU, each kernel with empty caches.",
    "warm_how": "DRAM counters of the GPU, the kernels back to back.",
    "average_how": (
        "NVML's average share of the whole GPU's memory bandwidth, reads and writes together: an "
        "average, not a count."
    ),
    "delayed": "Up to L2's size of what was written may still have been on its way.",
    "parts": "{read} read, {written} written.",
    "time_how": "Median of {samples} samples from {low} to {high}.",
    "one_how": "One sample.",
    "graph": "A replayed CUDA graph, so that launching costs nothing.",
    "events": "CUDA events around each call.",
    "benchmark": "torch's own benchmark timer.",
    "allocator": "The most that torch's allocator held beyond what was there before.",
    "process": "The most that a process of its own grew by.",
    "busy": "Other work ran on this machine meanwhile, so it may be too high.",
    "subject": "{heads} heads, {tokens} tokens, {dtype}, forward.",
    "on": "On {machine}.",
    "when": "{when}.",
    "versions": "{versions}.",
    "not_counted": "Not counted: {sentence}",
}

RATIO = {
    "asked": "{one} asks for {factor} times the bytes of {other}.",
    "moved": "{one} moves {factor} times the bytes of {other}.",
    "time": "{other} is {factor} times faster than {one}.",
    "memory": "{one} takes {factor} times the memory of {other}.",
    "asked_no": "{other} asks for no fewer bytes than {one} here.",
    "moved_no": "{other} moves no fewer bytes than {one} here.",
    "time_no": "{other} is no faster than {one} here.",
    "memory_no": "{other} takes no less memory than {one} here.",
    "moved_nothing": "{other} moved nothing through HBM: all of it stayed in L2.",
    "moved_hardly": "{other} moved next to nothing through HBM: all but {bytes} stayed in L2.",
}

HERE = {
    "and": " and ",
    "bytes_only": (
        "{names}: Triton kernels, made for a GPU. Without one their bytes can be had, but not "
        "their time."
    ),
    "time_only": "{names}: they run here, so time and memory are measured. Their bytes are not ours to count.",
}

CHIP = {
    "title": "Does N × N fit on the chip?",
    "here": "{tokens}",
    "limit": "{tokens} leaves L2",
    "fits": (
        "N × N is {size} here and fits into the {l2} L2 of {gpu}: even a kernel that stores it "
        "spares HBM. From {limit} tokens on it does not."
    ),
    "leaves": (
        "N × N is {size} here, more than the {l2} L2 of {gpu}: a kernel that stores it must go "
        "through HBM. It would fit up to {most} tokens."
    ),
    "sram": "SRAM, where a flash kernel's tiles lie: {sram} in each of {sms} multiprocessors.",
    "this_gpu": "this GPU",
    "recorded_gpu": "an NVIDIA H200 (recorded; there is no GPU here)",
    "spoken": "A line of token counts. This picture is at {tokens}; N × N leaves L2 at {limit}.",
}

RECORDED = {
    "title": "Recorded on one {machine}",
    "at": "{tokens} tokens, {dtype}, {when}. Not measured here.",
}

WORK = {
    "one_ahead": "One visitor is ahead of you.",
    "ahead": "{ahead} visitors are ahead of you.",
    "starting": "Starting",
    "other_size": "At {tokens} tokens: {sentence}",
    "stopped": "Stopped. What was measured until then is shown.",
    "failed": "The measurement failed; press the button once more.",
}
