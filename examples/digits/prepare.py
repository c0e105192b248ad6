"""Write the handwritten digits that scikit-learn bundles as idx files: 8x8 pictures, ink from 0 to 16."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from examples.digits.idx import write_idx
from examples.digits.parameters import parameters

FOLDER = Path(__file__).parent / "data"


def main() -> None:
    """A train and a test split, by position alone: no random number decides where a picture goes."""
    FOLDER.mkdir(exist_ok=True)
    digits = load_digits()
    pictures = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    every = int(parameters("data")["test_every"])
    is_test = np.arange(len(labels)) % every == every - 1
    for split, chosen in (("train", ~is_test), ("test", is_test)):
        write_idx(FOLDER / f"{split}-images.idx", pictures[chosen])
        write_idx(FOLDER / f"{split}-labels.idx", labels[chosen])
    (FOLDER / "labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)), encoding="utf-8")


if __name__ == "__main__":
    main()
