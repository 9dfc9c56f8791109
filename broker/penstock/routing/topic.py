"""Topic patterns: `*` stands for exactly one word, `#` for zero or more words; dots separate the words.

The match goes row by row over the pattern's words, so no pattern takes more than words times words, however many `#` it
has.
"""


def matches(pattern: str, key: str) -> bool:
    words = key.split(".")
    # reached[i]: the pattern so far can stand for the first i words.
    reached = [True] + [False] * len(words)
    for part in pattern.split("."):
        if part == "#":
            first = reached.index(True) if True in reached else len(reached)
            reached = [index >= first for index in range(len(reached))]
        else:
            reached = [False] + [before and part in ("*", word) for before, word in zip(reached, words, strict=False)]
    return reached[-1]
