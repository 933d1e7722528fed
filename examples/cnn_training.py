"""A convolutional network trained on images, restarted when the images are decoded and ready for it.

The third use case of Imamura and Yoshida's paper: CIFAR-10 as 60,000 JPEG files, a folder for each category, and the
layers of Keras' `cifar10_cnn`. What is kept are the prepared arrays, because reading and decoding the files is what
takes long.

    python examples/cnn_training.py --input generated --size 6000 --epochs 1     # files of the same shape, made here
    python examples/cnn_training.py --input digits --epochs 5                    # real ones, from scikit-learn
    python examples/cnn_training.py --input cifar10 --epochs 1                   # CIFAR-10's own, from a folder

Training needs TensorFlow (`pip install tensorflow-cpu`); with `--epochs 0` the arrays are only read through.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import restarts
from PIL import Image

SIDE = 32
CATEGORIES = 10
CATEGORY_NAMES = "airplane automobile bird cat deer dog frog horse ship truck".split()
SUFFIXES = (".jpg", ".jpeg", ".png")
#: Of images that are not divided, every sixth is for testing, as in CIFAR-10.
TEST_EVERY = 6
BATCH = 32
SEED = 1


# Folders of images.


def image_files(folder: Path) -> dict[str, list[Path]]:
    """The images of each category, in a fixed order: each folder that holds images is a category."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    files = {path.name: sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES) for path in folders}
    return {name: found for name, found in files.items() if found}


def divided(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Images for training and for testing: by the folders `train` and `test`, or else every sixth of a category."""
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        return image_files(folder / "train"), image_files(folder / "test")
    files = image_files(folder)
    is_test = lambda number: number % TEST_EVERY == TEST_EVERY - 1  # noqa: E731
    return (
        {name: [file for number, file in enumerate(found) if not is_test(number)] for name, found in files.items()},
        {name: [file for number, file in enumerate(found) if is_test(number)] for name, found in files.items()},
    )


def decoded(files: dict[str, list[Path]], names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The images as the network takes them: floats from 0 to 1, shuffled, and each one's category as a row of zeros
    with a one."""
    each = [(names.index(name), file) for name in files for file in files[name]]
    images = np.empty((len(each), SIDE, SIDE, 3), np.float32)
    labels = np.zeros((len(each), len(names)), np.float32)
    for place, number in enumerate(np.random.default_rng(SEED).permutation(len(each))):
        category, file = each[number]
        with Image.open(file) as image:
            image = image.convert("RGB")
            images[place] = np.asarray(image if image.size == (SIDE, SIDE) else image.resize((SIDE, SIDE)))
        labels[place, category] = 1
    images /= 255
    return images, labels


def load(folder: Path) -> restarts.Arrays:
    """All images of a folder, prepared."""
    train, test = divided(folder)
    names = sorted({*train, *test})
    if not names:
        raise SystemExit(f"{folder} has no folders with images, one for each category")
    x_train, y_train = decoded(train, names)
    x_test, y_test = decoded(test, names)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


# Folders that are made here.


def generated(count: int) -> Iterator[tuple[str, np.ndarray]]:
    """Images of the same shape and of about the same bytes as CIFAR-10's: noise, and a patch of colour for each
    category."""
    random = np.random.default_rng(SEED)
    for number in range(count):
        category = number % CATEGORIES
        image = random.integers(0, 96, (SIDE, SIDE, 3), np.uint8)
        row, column = divmod(category, 4)
        image[row * 10 : row * 10 + 10, column * 8 : column * 8 + 8, category % 3] += 128
        yield CATEGORY_NAMES[category], image


def digits(count: int) -> Iterator[tuple[str, np.ndarray]]:
    """The handwritten digits that ship inside scikit-learn, four times as large, in grey."""
    from sklearn.datasets import load_digits

    found = load_digits()
    for image, target in zip(found.images[:count], found.target[:count], strict=True):
        grey = np.kron(np.minimum(image * 16, 255).astype(np.uint8), np.ones((4, 4), np.uint8))
        yield str(target), np.repeat(grey[:, :, np.newaxis], 3, axis=2)


MAKERS = {"generated": generated, "digits": digits}


def write_images(folder: Path, images: Iterator[tuple[str, np.ndarray]]) -> None:
    """Writes JPEG files, a folder for each category."""
    for number, (category, image) in enumerate(images):
        (folder / category).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / category / f"{number:05}.jpg", quality=95)


def input_folder(options: argparse.Namespace) -> Path:
    """The folder of the images, which is made if it is one of ours and not there yet."""
    if options.input not in MAKERS:
        return Path(options.input)
    folder = options.disk / f"images-{options.input}-{options.size}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix="images-", dir=options.disk) as made:
            write_images(Path(made) / "whole", MAKERS[options.input](options.size))
            os.rename(Path(made) / "whole", folder)
    return folder


# The network.


def network(categories: int):
    """The layers of Keras' example `cifar10_cnn`, compiled as there."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 3)),
            layers.Conv2D(32, (3, 3), padding="same", activation="relu"),
            layers.Conv2D(32, (3, 3), activation="relu"),
            layers.MaxPooling2D((2, 2)),
            layers.Dropout(0.25),
            layers.Conv2D(64, (3, 3), padding="same", activation="relu"),
            layers.Conv2D(64, (3, 3), activation="relu"),
            layers.MaxPooling2D((2, 2)),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(categories, activation="softmax"),
        ]
    )
    # As `decay=1e-6` did in the versions of Keras that had it.
    rate = keras.optimizers.schedules.InverseTimeDecay(1e-4, decay_steps=1, decay_rate=1e-6)
    optimizer = keras.optimizers.RMSprop(learning_rate=rate)
    model.compile(loss="categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    return model


def train(options: argparse.Namespace, data: restarts.Arrays) -> dict[str, float]:
    """Trains the network; how large the data is, and how well it does on the images for testing."""
    answer = {name: float(array.mean(dtype=np.float64)) for name, array in data.items()}
    if options.epochs:
        import keras

        keras.utils.set_random_seed(SEED)
        model = network(data["y_train"].shape[1])
        model.fit(data["x_train"], data["y_train"], batch_size=BATCH, epochs=options.epochs, verbose=0)
        _, accuracy = model.evaluate(data["x_test"], data["y_test"], verbose=0)
        answer["accuracy"] = round(accuracy, 2)
    return answer


def missing(options: argparse.Namespace) -> str | None:
    """Loads what trains, and makes the images that are to be made, before anything is timed."""
    input_folder(options)
    if not options.epochs:
        return None
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if importlib.util.find_spec("tensorflow") is None:
        return "training needs TensorFlow (pip install tensorflow-cpu); --epochs 0 does without"
    import tensorflow  # noqa: F401

    return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(MAKERS)
    parser.add_argument("--input", default="digits", help=f"a folder of images, or one of: {names} (default: digits)")
    parser.add_argument("--size", type=int, default=60_000, help="how many images are made at most (default: 60000)")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the images; 0: no training (default: 1)")


def data_bytes(options: argparse.Namespace) -> int:
    count = sum(len(found) for half in divided(input_folder(options)) for found in half.values())
    return count * (SIDE * SIDE * 3 + CATEGORIES * 10) * 4


SCENE = restarts.Scene(
    title="Training a convolutional network on images",
    preparing="read and prepare",
    working="train",
    add_arguments=add_arguments,
    in_python=restarts.InPython(lambda options: load(input_folder(options)), train, data_bytes),
    missing=missing,
)

if __name__ == "__main__":
    restarts.main(SCENE)
