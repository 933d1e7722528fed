"""The examples that restart in three ways run, on little data, and read the folders that they say they read."""

import csv
import importlib
import subprocess
import sys
import xml.etree.ElementTree
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not beside the tests")


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


def run(tmp_path, script, *words):
    places = ["--disk", str(tmp_path), "--pmem", str(tmp_path), "--svg", str(tmp_path / "bars.svg")]
    command = [sys.executable, str(EXAMPLES / script), *words, *places]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rectangles = xml.etree.ElementTree.parse(tmp_path / "bars.svg").iter("{http://www.w3.org/2000/svg}rect")
    # The background, two bars with three phases and one with two, and a mark for each of four phases in the legend.
    assert len(list(rectangles)) == 1 + 3 + 3 + 2 + 4
    assert all(way in done.stdout for way in ("Retry", "disk-restart", "pmem-restart"))
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith("remanent")]
    assert left == []
    return done.stdout


def test_pi_is_the_same_in_all_three_ways(tmp_path):
    assert "answer of all three: 3.1" in run(tmp_path, "monte_carlo_pi.py", "--size", "1")


def test_images_are_prepared_and_kept(tmp_path):
    pytest.importorskip("PIL")
    assert "'y_train': 0.1" in run(
        tmp_path, "cnn_training.py", "--input", "generated", "--size", "120", "--epochs", "0"
    )


def test_folders_of_images_are_read_with_their_categories(tmp_path, example):
    pytest.importorskip("PIL")
    cnn = example("cnn_training")
    cnn.write_images(tmp_path / "flat", cnn.generated(60))
    flat = cnn.load(tmp_path / "flat")
    assert flat["x_train"].shape == (50, 32, 32, 3) and flat["x_test"].shape == (10, 32, 32, 3)
    assert flat["x_train"].dtype == np.float32 and 0 <= flat["x_train"].min() and 0.5 < flat["x_train"].max() <= 1
    assert (flat["y_train"].sum(axis=0) == 5).all() and (flat["y_test"].sum(axis=0) == 1).all()
    # The patch of colour tells the category also after the shuffling.
    for image, label in zip(flat["x_train"], flat["y_train"], strict=True):
        row, column = divmod(int(label.argmax()), 4)
        patch = image[row * 10 + 2 : row * 10 + 8, column * 8 + 2 : column * 8 + 6].mean()
        assert patch > image.mean() + 0.05
    for half, count in (("train", 20), ("test", 10)):
        cnn.write_images(tmp_path / "halves" / half, cnn.generated(count))
    halves = cnn.load(tmp_path / "halves")
    assert len(halves["x_train"]) == 20 and len(halves["x_test"]) == 10
    (tmp_path / "none").mkdir()
    with pytest.raises(SystemExit, match="no folders with images"):
        cnn.load(tmp_path / "none")


def test_digits_become_images(tmp_path, example):
    pytest.importorskip("PIL")
    pytest.importorskip("sklearn")
    cnn = example("cnn_training")
    options = Namespace(input="digits", size=100, disk=tmp_path)
    folder = cnn.input_folder(options)
    assert folder == cnn.input_folder(options) and len(list(folder.glob("*/*.jpg"))) == 100
    data = cnn.load(folder)
    assert data["y_train"].shape[1] == 10
    assert cnn.data_bytes(options) >= sum(array.nbytes for array in data.values())


def test_taxi_records_hang_together(tmp_path, example):
    pytest.importorskip("pyarrow")
    taxi = example("taxi_csv")
    files = [tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv"]
    counts = [taxi.write(file, 200_000, seed) for file, seed in zip(files, (1, 1, 2), strict=True)]
    texts = [file.read_bytes() for file in files]
    assert texts[0] == texts[1] != texts[2] and 190_000 < len(texts[0]) < 230_000
    with open(files[0], newline="") as file:
        trips = list(csv.DictReader(file))
    assert len(trips) == counts[0] and list(trips[0]) == taxi.COLUMNS
    for trip in trips:
        parts = ("fare_amount", "extra", "mta_tax", "tip_amount", "tolls_amount", "improvement_surcharge")
        assert abs(sum(float(trip[part]) for part in parts) - float(trip["total_amount"])) < 0.006
        assert trip["tpep_pickup_datetime"].startswith("2015-01-") and trip["store_and_fwd_flag"] in ("N", "Y")
    assert (
        np.corrcoef(*[[float(trip[name]) for trip in trips] for name in ("trip_distance", "fare_amount")])[0, 1] > 0.8
    )
