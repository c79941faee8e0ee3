"""How far a visitor's measurement is, as a thin bar and a sentence of constant height."""

from __future__ import annotations

from html import escape

from app.jobs import Job, Snapshot
from app.text.cost import WORK
from kernels import Problem


def progress(job: Job | None, problem: Problem) -> str:
    """The state of the job in words; while it runs, in a place of constant height."""
    if job is None:
        return place("", None)
    now, theirs = job.snapshot, job.request.entries[0][0]
    same = theirs == problem
    if now.state in ("waiting", "running"):
        words = at_work_words(now)
        if not same:
            words = WORK["other_size"].format(tokens=f"{theirs.queries:,}", sentence=words)
        return place(words, now.progress)
    return place(over_words(now) if same else "", None)


def at_work_words(now: Snapshot) -> str:
    if now.ahead:
        return WORK["one_ahead"] if now.ahead == 1 else WORK["ahead"].format(ahead=now.ahead)
    return now.sentence or WORK["starting"]


def over_words(now: Snapshot) -> str:
    """What the end of a measurement leaves to say; nothing where all went well."""
    if now.state == "stopped":
        return WORK["stopped"]
    if now.state == "failed":
        return now.trouble or WORK["failed"]
    return now.trouble or ""


def place(words: str, done: float | None) -> str:
    if done is None:
        return f'<div class="cost-work"><p role="status">{escape(words)}</p></div>'
    bar = f'<progress max="1" value="{min(max(done, 0), 1):.3f}"></progress>'
    return f'<div class="cost-work cost-live">{bar}<p role="status">{escape(words)}</p></div>'
