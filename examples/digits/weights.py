"""Where the trained weights lie between the frameworks: an npz file of arrays named as in PyTorch."""

from pathlib import Path

MODELS = Path(__file__).parent / "models"
WEIGHTS = MODELS / "weights.npz"
