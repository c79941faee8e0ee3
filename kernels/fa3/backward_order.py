# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
"""Who adds to dQ when: one fixed order for every tile of queries, and a walk in which nobody waits long.

A program owns one tile of keys and walks over all tiles of queries that see it. Float32 sums depend on their
order, so each query tile takes its additions in a fixed one. To keep the programs from queueing up, each
begins its walk one or two tiles behind its neighbour: when a program comes to a tile, the one before it in
the order has just left.

Where the last wave would leave many multiprocessors idle, its walks are cut into parts, each with a ticket of its
own: a part of a walk is a walk, over the tiles of queries of the part.

Programs draw tickets, and the `slots` tickets that fit on the GPU at once are a wave. A tile of queries takes
the key tiles of an earlier wave first; inside a wave those of the same head in falling order, from the one that
begins nearest before it, round to the one that begins behind it. Whoever is waited for has drawn a ticket of an
earlier wave or has room in this one, so the waiting ends.
"""

from __future__ import annotations

from kernels.hopper import gl, gluon

FREE_STEPS = gl.constexpr(2)
"""How many tiles apart neighbours begin, where the walk is long enough: slack for one that is late.

3 with three heads at once, which gives everyone so much room, was no faster: 530 and 582 TFLOP/s at head_dim 64
and 128, against 535 and 609.
"""


@gluon.jit
def first_query_tile(key_tile, queries, keys, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr):
    """Causal: the first tile with a query that sees this tile of keys."""
    return gl.maximum(0, key_tile * BLOCK_K + queries - keys) // BLOCK_Q


@gluon.jit
def last_key_tile(query_tile, queries, keys, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr):
    """Causal: the last tile of keys that a query of this tile sees."""
    return gl.minimum(keys - 1, (query_tile + 1) * BLOCK_Q - 1 + keys - queries) // BLOCK_K


@gluon.jit
def place_of(ticket, wave, key_tiles, here, slots):
    """-> which of `here` that take tickets in turns, the tile of keys, and the first and last of this wave.

    `wave`: the first ticket of the wave, counted like `ticket` from the first of these.
    """
    among, tile = ticket % here, ticket // here
    first = (gl.maximum(0, wave - among) + here - 1) // here
    last = (wave + slots - among + here - 1) // here - 1
    return among, tile, first, gl.minimum(key_tiles - 1, last)


@gluon.jit
def key_tile_of(ticket, key_tiles, kv_rows, together, slots, whole, parts):
    """-> which kv head (batch * kv_heads + kv_head), tile of keys, part of its walk, and of how many; and the
    first and last tile that the head, or this part of it, has in this wave.

    `together` heads take tickets in turns, tile by tile; then the next ones do. Behind the first `whole` tickets,
    which are full waves, the `parts` of a head take their place; `together` is 1 there.
    """
    wave = ticket // slots * slots
    if ticket < whole:
        chunk = ticket // (together * key_tiles)
        here = gl.minimum(together, kv_rows - chunk * together)
        skipped = chunk * (together * key_tiles)
        among, tile, first, last = place_of(
            ticket - skipped, wave - skipped, key_tiles, here, slots
        )
        kv_row, part, count = chunk * together + among, among * 0, among * 0 + 1
    else:
        # Counted as if all tiles before had been cut too.
        skipped = whole - whole * parts
        head = (ticket - skipped) // (parts * key_tiles)
        skipped += head * (parts * key_tiles)
        part, tile, first, last = place_of(
            ticket - skipped, wave - skipped, key_tiles, parts, slots
        )
        kv_row, count = head, parts
    return kv_row, tile, part, count, first, last


@gluon.jit
def start_of_walk(tile, first, last, visits):
    """Full: the visit with which the program of this key tile begins."""
    members = last - first + 1
    return (tile - first) * gl.minimum(visits, FREE_STEPS * members) // members


@gluon.jit
def turn(
    visit, query_tile, tile, first, last, visits, queries, keys,
    BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """How many key tiles add to this query tile before this one does."""
    if CAUSAL:
        nearest = gl.minimum(last, last_key_tile(query_tile, queries, keys, BLOCK_Q, BLOCK_K))
        return first + nearest - tile
    members = last - first + 1
    spread = gl.minimum(visits, FREE_STEPS * members)
    nearest = gl.minimum(members - 1, ((visit + 1) * members - 1) // spread)
    before = nearest - (tile - first)
    return first + gl.where(before < 0, before + members, before)


@gluon.jit
def visit_of(step, walk):
    """-> the number of the visit, the head of the group, and the tile of queries.

    `walk`: the visit it begins with, how many there are, the first tile of queries, the tiles of each head, and the
    visits in the parts before.
    """
    start, total, first_query, per_head, before = walk
    visit = start + step
    visit = gl.where(visit >= total, visit - total, visit)
    place = before + visit
    return visit, place // per_head, first_query + place % per_head
