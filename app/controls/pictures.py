"""The choice of picture: samples as thumbnails, an upload by any way, a camera on request."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import streamlit as st
from streamlit.components.v2 import component
from streamlit.runtime.uploaded_file_manager import UploadedFile

from app import compute, samples, session
from app.guard import guarded_callback
from app.state import State
from app.text import en
from app.theme import THUMBNAIL_SIDE_PX
from app.uploads import is_upload
from vit.image import MAX_FILE_BYTES, load_image

FOLDER = Path(__file__).parent
STRIP, TURN, CAMERA, CAMERA_WANTED = "pictures", "upload turn", "camera", "camera wanted"
UPLOAD_WIDTH_PX = 130
KINDS = ["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "avif"]

_strip = component(
    "picture_strip",
    css=(FOLDER / "pictures.css").read_text("utf-8"),
    js=(FOLDER / "pictures.js").read_text("utf-8"),
)


def picture_choice() -> None:
    """Thumbnails of the samples, and of the visitor's own picture once there is one."""
    chosen = session.state().picture
    names = [*samples.SAMPLES, *([chosen] if is_upload(chosen) else [])]
    _strip(
        key=STRIP,
        data={
            "label": en.PICTURE["strip"],
            "chosen": chosen,
            "uploader": f".st-key-{upload_key()}",
            "items": [thumbnail(name) for name in names],
        },
        on_picked_change=pick,
    )


def upload_choice() -> None:
    """The upload field; it is empty again after each upload."""
    limit = MAX_FILE_BYTES // 2**20
    st.file_uploader(
        en.PICTURE["upload"],
        type=KINDS,
        key=upload_key(),
        on_change=take_upload,
        max_upload_size=limit,
        help=en.PICTURE["upload_help"].format(limit=limit),
        width=UPLOAD_WIDTH_PX,
    )


def camera_choice() -> None:
    """The camera, which the browser asks for only once the visitor wants it."""
    if st.toggle(en.PICTURE["camera"], key=CAMERA_WANTED):
        st.camera_input(
            en.PICTURE["camera_take"], key=f"{CAMERA}-{turn()}", on_change=take_camera, width=400
        )


def thumbnail(name: str) -> dict[str, str]:
    """What the strip shows of one picture."""
    jpeg = compute.thumbnail(name, THUMBNAIL_SIDE_PX)
    word = name if name in samples.SAMPLES else "upload"
    return {
        "name": name,
        "title": en.PICTURE[f"title_{word}"],
        "alt": en.PICTURE[f"alt_{word}"],
        "source": "data:image/jpeg;base64," + base64.b64encode(jpeg).decode(),
    }


def upload_key() -> str:
    """A new field for each upload: the same file can be given again, and none is kept twice."""
    return f"upload-{turn()}"


def turn() -> int:
    """How many pictures this visitor has brought so far."""
    return st.session_state.get(TURN, 0)


@guarded_callback
def pick() -> None:
    name = st.session_state[STRIP].picked
    if isinstance(name, str) and (name in samples.SAMPLES or is_upload(name)):
        show(name)


@guarded_callback
def take_upload() -> None:
    take(st.session_state.get(upload_key()))


@guarded_callback
def take_camera() -> None:
    take(st.session_state.get(f"{CAMERA}-{turn()}"))


def take(file: UploadedFile | None) -> None:
    """Keep an uploaded file if it is a picture, and show it.

    Raises:
        ImageError: it is none; the last picture stays.
    """
    if file is None:
        return
    st.session_state[TURN] = turn() + 1
    content = file.getvalue()
    load_image(content)
    st.session_state[CAMERA_WANTED] = False
    show(compute.shared().uploads.keep(content))


def show(name: str) -> None:
    """Change to a picture; patches of the last one mean nothing on it."""
    session.write(replace(session.state(), picture=name, query=State.query, pin=None))
