"""Made-up sentences with words that must agree, cut into windows of characters."""

from __future__ import annotations

import random

import torch

from recsys.chains.base import ChainBatch

ALPHABET = " .abcdefghijklmnopqrstuvwxyz"
_NOUNS = ("fox", "owl", "baker", "sailor", "horse", "clerk", "drummer", "gardener", "queen", "robot", "painter", "bear")
_VERBS = ("see", "greet", "follow", "hear", "help", "paint", "find", "remember", "visit", "answer")
_ADJECTIVES = ("old", "red", "quiet", "brave", "tiny", "hungry", "clever", "tall", "weary", "lucky")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
_PLACES = ("river", "market", "tower", "bridge", "garden", "harbour", "forest", "station")


def draw_windows(rows: int, context: int, seed: int) -> ChainBatch:
    """Windows from a text of sentences such as ``the old fox sees seven owls near the river.``

    Args:
        rows: number of windows.
        context: characters of a window.
        seed: of the text and of where the windows begin.

    Returns:
        Numbers of characters ``(rows, context)``, and for each the character after it.
    """
    draw = random.Random(seed)
    number = {character: i for i, character in enumerate(ALPHABET)}
    # About eight characters of text for each window: windows overlap, as in training on a long text.
    wanted = 8 * rows + 2 * context
    text = ""
    sentences: list[str] = []
    length = 0
    while length < wanted:
        sentences.append(_sentence(draw))
        length += len(sentences[-1])
    text = "".join(sentences)
    codes = torch.tensor([number[c] for c in text])
    starts = torch.tensor([draw.randrange(len(codes) - context) for _ in range(rows)])
    at = starts.unsqueeze(1) + torch.arange(context)
    return ChainBatch(codes[at], codes[at + 1])


def _sentence(draw: random.Random) -> str:
    subject, many = _group(draw)
    thing, _ = _group(draw)
    verb = draw.choice(_VERBS) + ("" if many else "s")
    place = f" near the {draw.choice(_PLACES)}" if draw.random() < 0.5 else ""
    return f"{subject} {verb} {thing}{place}. "


def _group(draw: random.Random) -> tuple[str, bool]:
    """A noun with its words, and whether it is plural."""
    many = draw.random() < 0.5
    adjective = f"{draw.choice(_ADJECTIVES)} " if draw.random() < 0.5 else ""
    first = draw.choice(_NUMBERS) if many else "the"
    return f"{first} {adjective}{draw.choice(_NOUNS)}{'s' if many else ''}", many
