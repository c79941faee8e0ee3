"""What is said of a measurement on its way, and of one that went wrong."""

from __future__ import annotations

DOING = {
    "start": "Starting the measuring process.",
    "time": "Timing {entry}.",
    "memory": "Measuring the peak memory of {entry}.",
    "counted": "Counting the bytes that {entry} asks for.",
    "hbm": "Reading the GPU's memory counters.",
    "energy": "Measuring the energy of {entry}.",
    "roofs": "Measuring how fast this machine moves bytes and multiplies.",
    "done": "Measured.",
    "stopped": "Stopped.",
    "failed": "Not measured.",
}
ENTRY = "{name}, {direction}, {tokens} tokens"

WENT_WRONG = {
    "killed": (
        "The system ended the measuring process at {what}; as a rule it ran out of memory. "
        "Take fewer tokens, or close other programs."
    ),
    "crashed": (
        "The measuring process crashed (signal {number}) at {what}. Try another size or implementation."
    ),
    "ended": (
        "The measuring process ended (code {number}) at {what}. Try another size; the server's log has the cause."
    ),
    "garbage": "The measuring process said something unreadable at {what} and was ended. Measure again.",
    "silent": "There was no answer for {seconds} s at {what}, so it was ended. Take fewer tokens.",
    "roofs": "this machine's own roofs",
    "not_started": (
        "The measuring process did not start, so nothing was measured. Measure again; the server's log has the cause."
    ),
    "again_and_again": (
        "The measuring process ended again and again, so the rest was not measured. The server's log has the cause."
    ),
    "inside": "The measurement failed. Measure again; the server's log has the cause.",
    "abandoned": "Nobody looked at this sweep for {seconds} s, so it was stopped. Start it again.",
}
