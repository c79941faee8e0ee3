"""The words of the page How it works. Its sources stand at the foot, and beside what they say here.

[1] Dao, Fu, Ermon, Rudra, Ré 2022, "FlashAttention", arXiv 2205.14135.
[2] Dao 2023, "FlashAttention-2", arXiv 2307.08691.
[3] Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", arXiv 1805.02867.
[4] Shah, Bikshandi, Zhang, Thakkar, Ramani, Dao 2024, "FlashAttention-3", arXiv 2407.08608.
[5] Osama, Merrill, Cecka, Garland, Owens 2023, "Stream-K", arXiv 2301.03598.
"""

from __future__ import annotations

PAGE = {
    "title": "How it works",
    "lead": (
        "Why a kernel that never stores the N × N matrix gives the same answer with less traffic. Seven short parts, "
        "each with a question to try on your own picture."
    ),
    "try": "Try it",
    "tiles": ":primary[Open this walk]",
    "small": ":small[{text}]",
}

MEMORY = {
    "title": "1. Three memories",
    "text": (
        "A multiprocessor computes only with what lies on its own piece of the chip. All else has to be "
        "fetched, and the larger a memory is, the farther away and the slower it is [1, section 2.1]."
    ),
    "sram": "SRAM",
    "sram_size": "{one} in each of {count} multiprocessors, {all} in all",
    "sram_holds": (
        "One tile each of Q, K and V. The tile's scores, m, l and the unfinished output lie in "
        "registers beside it, on the chip too."
    ),
    "l2": "L2 cache",
    "l2_size": "{l2}, shared by all",
    "l2_holds": "What was read or written lately, such as a tile of K that a neighbour has just used.",
    "hbm": "HBM",
    "hbm_size": "{hbm}",
    "hbm_holds": "Whole tensors: Q, K, V and O, and the N × N matrices of a kernel that stores them.",
    "here": "this GPU",
    "recorded": "recorded on an NVIDIA H200; there is no GPU here",
    "data_sheet": "data sheet of the NVIDIA H200",
    "rates": (
        "On the recorded H200 a plain copy moves {hbm_rate} through HBM (recorded). All its shared memories "
        "together can give {sram_rate} (formula: {count} × 128 bytes a clock, at the recorded {clock})."
    ),
    "yours": (
        "Your picture has {tokens} tokens. One head's Q, K and V take {inputs}, its N × N scores {matrix} "
        "(formula, {dtype}). {fits}"
    ),
    "too_large": "The scores do not fit into one multiprocessor's SRAM, but tiles of them do, one after the other.",
    "would_fit": "That would even fit into one multiprocessor's SRAM; a larger picture would not.",
    "question": "How much of the SRAM do tiles of 64 × 64 fill, and what lies in L2 and HBM meanwhile?",
}

SAFE = {
    "title": "2. A softmax that cannot overflow",
    "text": (
        "Softmax turns scores into weights: {literal}. Taken literally it breaks: from about x = {half} on "
        "{power} is more than the largest float16, from about {single} on more than the largest float32, and infinity by "
        "infinity is not a number. So the largest score m is subtracted first:"
    ),
    "literal": r"$\mathrm{softmax}(x)_i = e^{x_i} / \sum_j e^{x_j}$",
    "power": "$e^x$",
    "formulas": (
        r"m=\max_j x_j,\quad l=\sum_j e^{x_j-m}",
        r"\mathrm{softmax}(x)_i=\frac{e^{x_i-m}}{l}",
    ),
    "after": (
        "Nothing changes, for $e^{-m}$ stands above and below the line. But now the largest term is "
        "$e^0 = 1$ and l lies between 1 and N. What becomes too small turns to 0, which is harmless. The price: m must be known "
        "before the first exponential, so the row is passed over three times: for m, for l, and to divide [3, section 2]."
    ),
    "question": (
        "Leave the maximum out. Does this head go wrong? Find its largest score, and compare it with the "
        "{single} above."
    ),
}

MERGE_TEXT = {
    "title": "3. Two blocks, one softmax",
    "text": (
        "A flash kernel sees a row's scores a block at a time, so it never knows the final m in advance. It "
        "need not: the m and l of two blocks are enough to join them as if they had been one [3, section 3.1]. "
        r"Each block is shrunk by its own factor, $\alpha_x = e^{m_x - m}$ and $\alpha_y = e^{m_y - m}$: one of them is 1, "
        "the other at most 1. Move the scores:"
    ),
    "circulating": "Another formula is in circulation:",
    "circulating_formula": (
        r"\begin{aligned}\mathrm{softmax}\bigl(&\mathrm{softmax}(x)\,e^{m_x-m},\\"
        r"&\mathrm{softmax}(y)\,e^{m_y-m}\bigr)\end{aligned}"
    ),
    "circulating_why": (
        "It takes exponentials of exponentials, and it has lost $l_x$ and $l_y$. Dividing by the sum in place of the outer "
        "softmax does not mend it, unless $l_x = l_y$. Where all six scores are equal it happens to be right, so a test "
        "with equal scores finds nothing."
    ),
    "question": (
        "Follow one row. At which steps is α below 1, and what happens to the map if the output is not rescaled there?"
    ),
}

MERGE = {
    "block": "Block {name}",
    "presets": "Scores to start from",
    "own": "block {block}",
    "max": "common maximum",
    "factor": "of {block}: {power} = {value}",
    "factors": "α, the shrinking",
    "sum": "common sum",
    "weight": "weight of x₁",
    "table": "The weights of the six scores, three ways",
    "score": "score",
    "all": "softmax of all six",
    "merged": "two blocks, merged",
    "wrong": "formula in circulation",
    "right": "The merge differs from the softmax of all six by at most {error}.",
    "wrong_by": "The formula in circulation is off by up to {error}.",
    "wrong_not": "Here the formula in circulation happens to be right.",
}

PRESETS = {
    "start": "y has the maximum",
    "equal": "All equal",
    "far": "Far apart",
}

LOOPS = {
    "title": "4. Why the loops were turned round",
    "text": (
        "FlashAttention-1 walks along the keys outside and along the queries inside [1, algorithm 1]. So it reads K and V once, "
        "but it leaves every query unfinished: output, m and l go to HBM and come back for each tile of keys. "
        "FlashAttention-2 turns the loops round [2, section 3.2; it credits Phil Tillet's Triton kernel with the order]:"
    ),
    "reasons": (
        "- **No way back and forth.** A program keeps its queries' output, m and l on the chip until they are finished. K and V "
        "are read again for each tile of queries, and L2 often has them.\n"
        "- **More programs.** Each tile of queries is a program of its own. FlashAttention-1 has one for each head of "
        "each picture: {heads} for your picture, where {gpu} has {sms} multiprocessors.\n"
        "- **Division at the end.** Also new, but no result of the order: the output is divided by l once and not at each step [2, "
        "section 3.1.1]. That spares work outside the matrix units, which are far faster than the rest."
    ),
    "bytes": (
        "Bytes that one head of your picture asks for, with the tiles that each kernel takes on this machine "
        "(formula, forward, {dtype}):"
    ),
    "this_gpu": "this GPU",
    "recorded_gpu": "the recorded H200",
    "read": "read",
    "written": "written",
    "kernel": "kernel",
    "naive": "naive, stores N × N",
    "fa1": "FlashAttention-1",
    "fa2": "FlashAttention-2",
    "question": "Walk FlashAttention-1 over the same head. What is read and written at each step that FlashAttention-2 keeps?",
}

AT_ONCE = {
    "title": "5. FlashAttention-3: at the same time",
    "text": (
        "Version 3 computes what version 2 computes. It was written for a chip, NVIDIA's Hopper, on which copies from memory and "
        "matrix products run by themselves once they are started. A kernel that starts one and then waits for it gains nothing from "
        "that. Version 3 has always several things under way [4, section 3]:"
    ),
    "reasons": (
        "- **Warps with different jobs.** One warp fetches tiles and does nothing else; the others compute and never fetch. What is "
        "needed next arrives while the tile before is in use.\n"
        "- **A product behind each softmax.** The scores of the next tile need nothing from this tile's softmax. So their product is "
        "started early, and the matrix units work while the exponentials are taken.\n"
        "- **Turns.** Two groups of warps hold different queries. While one multiplies, the other is in its softmax; then they swap."
    ),
    "worth": (
        "In the paper a kernel of 661 TFLOP/s falls to 582 without the different jobs, and to 570 without the product behind the "
        "softmax [4, table 2]. Our kernel takes turns too."
    ),
    "why": (
        "The softmax deserves this care. An H100 does 989 trillion operations a second on its matrix units, but only 3.9 trillion "
        "exponentials [4, section 3.1]: one for every 254 operations. A head of {d} numbers needs one for every {operations} "
        "(4 × {d}), so one after the other the exponentials would add {share} to the time of the products (formula)."
    ),
    "eight_bits": (
        "**FP8** is a second gain of version 3, not the first. With numbers of 8 bits the matrix units are twice as fast, but such a "
        "number has three binary digits after the leading one, and one outlier in a block would leave the others hardly any. So "
        "each block has its own scale, and Q and K are both turned by one random rotation first, called *incoherent processing* [4, "
        "section 3.3]. A rotation spreads an outlier over all numbers of its vector, and leaves every product $q \\cdot k$ as it is."
    ),
    "question": (
        "Walk FlashAttention-3. Which tile of keys comes first, and why does no later one need a mask?"
    ),
}

LAST_WAVE = {
    "title": "6. Nobody waits at the end",
    "text": (
        "Tiles of queries are worked on in waves, one tile on each multiprocessor. The last wave is seldom full: with 150 tiles on 132 "
        "multiprocessors, 18 are at work in the second wave and 114 have nothing to do, so the whole takes as long as 264 tiles would."
    ),
    "yours": (
        "Your picture's {heads} heads are {tiles} tiles of {rows} queries. On {gpu} with {sms} multiprocessors that is {waves} "
        "(formula)."
    ),
    "one_wave": "one wave, {share} full",
    "waves": "{count} waves, the last one {share} full",
    "cut": (
        "So what is left for the last wave can be cut the other way, along its keys: every multiprocessor gets an equal share of them [5, "
        "for matrix products]. A tile of queries then has several outputs, each of some of the keys, and part 3 says how to "
        "join them: m and l of each are enough, or their log-sum-exp. It costs a few bytes, for the shares go through memory in float32, "
        "and a small kernel more. Our kernel cuts where that is less than the time that would be lost."
    ),
    "question": (
        "Take tiles of 16 queries. How many tiles has your head now, and what does each of them read again?"
    ),
}

NOT = {
    "title": "7. What FlashAttention is not",
    "text": (
        "- **Not fewer operations.** The same two matrix products forward, and a little rescaling. Backward it computes the "
        "scores a second time [1, section 3.1]: five products where a kernel that kept them needs four; our FlashAttention-2 takes "
        "seven, so as to need no atomic additions. It is faster because it moves fewer bytes.\n"
        "- **Not an approximation.** Every query meets every key that it may see, and the result is the textbook's up to rounding.\n"
        "- **Not linear in everything.** Memory beyond inputs and output grows with N. Traffic still grows with N²: "
        "about $N^2 d^2 / M$ numbers, where d is the head's width and M the numbers that fit on the chip, against $N d + N^2$ [1, theorem 2, for "
        r"$d \le M \le N d$, without constants]." + "\n"
        "- **Not always less HBM.** While N × N fits into L2 even a kernel that stores it can spare HBM. The panel *What "
        "this costs* says where your picture stands."
    ),
    "law": (
        "With d = {d} and M = {m} numbers ({sram} of {dtype}), d²/M is {ratio}, so about {factor} times fewer numbers than N², "
        "constants aside (formula; from N = M/d = {tokens} tokens on)."
    ),
    "question": (
        "Compare the bytes of the whole head, below the player, for tiles of 64 × 64 and of 16 × 16. Which are more, "
        "and why does the answer stay the same?"
    ),
}

SOURCES = (
    (
        "[1] T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré 2022. FlashAttention: Fast and Memory-Efficient Exact Attention with "
        "IO-Awareness.",
        "https://arxiv.org/abs/2205.14135",
    ),
    (
        "[2] T. Dao 2023. FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning.",
        "https://arxiv.org/abs/2307.08691",
    ),
    (
        "[3] M. Milakov, N. Gimelshein 2018. Online normalizer calculation for softmax.",
        "https://arxiv.org/abs/1805.02867",
    ),
    (
        "[4] J. Shah, G. Bikshandi, Y. Zhang, V. Thakkar, P. Ramani, T. Dao 2024. FlashAttention-3: Fast and Accurate Attention "
        "with Asynchrony and Low-precision.",
        "https://arxiv.org/abs/2407.08608",
    ),
    (
        "[5] M. Osama, D. Merrill, C. Cecka, M. Garland, J. D. Owens 2023. Stream-K: Work-centric Parallel Decomposition for Dense "
        "Matrix-Matrix Multiplication on the GPU.",
        "https://arxiv.org/abs/2301.03598",
    ),
)
