"""Colours are told apart with every common kind of colour vision."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from soc_pymc.plots import canvas

# Machado, Oliveira and Fernandes (2009), A physiologically-based model for simulation of color
# vision deficiency, IEEE Transactions on Visualization and Computer Graphics 15, 1291-1298:
# severity 1, on linear RGB
VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
# of sRGB (IEC 61966-2-1): from linear RGB to XYZ with the white point D65
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
LEAST = {"usual": 26.4, "protanopia": 20.7, "deuteranopia": 15.7}  # of all pairs, as they are
COLOURS = {*canvas.PALETTE, canvas.CURVE, canvas.OBSERVED, canvas.REFERENCE}
COLOURS |= {canvas.GIVEN, canvas.APART, canvas.BESIDE}


def lab(colour, vision):
    """CIE Lab of a colour as it is seen."""
    encoded = np.array(to_rgb(colour))
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_lab_of_white_and_red():
    """Red as in tables of sRGB: (53.24, 80.09, 67.20)."""
    np.testing.assert_allclose(lab("white", "usual"), [100, 0, 0], atol=1e-6)
    np.testing.assert_allclose(lab("red", "usual"), [53.24, 80.09, 67.20], atol=0.01)


@pytest.mark.parametrize("vision", VISION)
def test_colours_are_apart(vision):
    seen = {colour: lab(colour, vision) for colour in sorted(COLOURS)}
    apart = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in combinations(seen, 2)}
    least = min(apart.values())
    assert least >= 12, min(apart, key=apart.get)
    assert least == pytest.approx(LEAST[vision], abs=0.05)


def test_every_role_has_a_colour_of_its_own():
    names = ("CURVE", "OBSERVED", "REFERENCE", "GIVEN", "APART", "BESIDE")
    assert len({getattr(canvas, name) for name in names}) == len(names)
