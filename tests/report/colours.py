"""Contrast and colour blindness, computed: WCAG 2.2's ratio, Viénot's dichromats, CIELAB distance.

Sources: WCAG 2.2, "relative luminance" and "contrast ratio"; F. Viénot, H. Brettel and J. D.
Mollon, "Digital video colourmaps for checking the legibility of displays by dichromats", Color
Research & Application 24 (1999); CIE 15 for L*a*b* under D65 and the distance of 1976.
"""

from __future__ import annotations

import math
import re

Linear = tuple[float, float, float]

VIENOT = {
    "deuteranopia": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
    "protanopia": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
}
"""Linear RGB -> linear RGB as it looks to a dichromat; grey stays grey."""


def linear(colour: str) -> Linear:
    """Return `#rrggbb` as linear RGB, each 0 to 1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return red, green, blue


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb`, 0 (black) to 1 (white)."""
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def as_seen(colour: str, blindness: str | None) -> Linear:
    """Return how `#rrggbb` looks, as linear RGB; None is normal sight."""
    red, green, blue = linear(colour)
    if blindness is None:
        return red, green, blue
    rows = VIENOT[blindness]
    seen = [min(1.0, max(0.0, a * red + b * green + c * blue)) for a, b, c in rows]
    return seen[0], seen[1], seen[2]


def lab(colour: Linear) -> Linear:
    """Return L*, a*, b* of linear RGB under D65."""
    red, green, blue = colour
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883

    def cube(value: float) -> float:
        return value ** (1 / 3) if value > (6 / 29) ** 3 else value / (3 * (6 / 29) ** 2) + 4 / 29

    return 116 * cube(y) - 16, 500 * (cube(x) - cube(y)), 200 * (cube(y) - cube(z))


def distance(one: str, other: str, blindness: str | None = None) -> float:
    """Return how far apart two colours look (CIE 1976); 2.3 can just be told apart."""
    return math.dist(lab(as_seen(one, blindness)), lab(as_seen(other, blindness)))


def variables(css: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the colours of a style sheet's `:root`, light, and dark where they are other ones."""
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    found = [dict(re.findall(r"--([\w-]+): (#[0-9A-Fa-f]{6})", block)) for block in blocks[:2]]
    light, dark = found
    return light, {**light, **dark}
