"""The programs of the paper's evaluation in R: each way of each has the same answer, and records are read whatever a year
calls their columns. The folder to work in is given."""

import ast
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import regression  # noqa: E402
import restarts  # noqa: E402
import taxi_csv  # noqa: E402

folder = Path(tempfile.mkdtemp(dir=sys.argv[1]))


def restarted(script, *words):
    """The answer of a scene, which draws its bars too."""
    places = ["--disk", str(folder), "--pmem", str(folder), "--svg", str(folder / "bars.svg")]
    command = [sys.executable, str(EXAMPLES / script), *words, *places]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    # The background, two bars with three phases and one with two, and a mark for each of four phases in the legend.
    bars = list(ElementTree.parse(folder / "bars.svg").iter("{http://www.w3.org/2000/svg}rect"))
    assert len(bars) == 1 + 3 + 3 + 2 + 4, bars
    return ast.literal_eval(said.partition("answer of all three: ")[2].splitlines()[0])


def coefficients(file, model="taxi"):
    """What the script finds in a file; or what it says when it does not."""
    command = ["Rscript", "--vanilla", str(EXAMPLES / "regression.R"), "second", "Retry", str(folder)]
    done = subprocess.run([*command, f"model={model}", f"input={file}"], capture_output=True, text=True)
    return json.loads(done.stdout)[1] if done.returncode == 0 else done.stderr


def rewritten(name, change, lines=lambda text: text):
    """The records with other columns."""
    with open(taxi, newline="") as source:
        rows = [change(row) for row in csv.DictReader(source)]
    with open(folder / name, "w", newline="") as made:
        writer = csv.DictWriter(made, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (folder / name).write_text(lines((folder / name).read_text()))
    return folder / name


def renamed(**names):
    return lambda row: {names.get(key, key): value for key, value in row.items()}


assert 3.1 < restarted("monte_carlo_pi.py", "--language", "r", "--size", "1")["pi"] < 3.2
answer = restarted("regression.py")
assert list(answer) == ["(Intercept)", "dep_delay", "distance", "air_time", "hour", "month"]
# A minute of delay at departure is about one at arrival.
assert 0.9 < answer["dep_delay"] < 1.1, answer

taxi = folder / "taxi.csv"
assert taxi_csv.write(taxi, 1_000_000, 1) > 5000
expected = coefficients(taxi)
# Tolls and extras are paid as they are.
assert abs(expected["tolls_amount"] - 1) < 0.05 and 3 < expected["trip_distance"] < 5, expected
assert restarted("regression.py", "--input", str(taxi)) == restarts.shortened(expected)

# As in 2009; as from 2010 to 2014, with blanks in the header and an empty line below it; as from 2019 on.
names = {"total_amount": "Total_Amt", "tip_amount": "Tip_Amt", "tolls_amount": "Tolls_Amt", "extra": "surcharge"}
old = renamed(**names, passenger_count="Passenger_Count", trip_distance="Trip_Distance")
assert coefficients(rewritten("2009.csv", old)) == expected
blanks = renamed(**{name: f" {name}" for name in taxi_csv.COLUMNS} | {"extra": " surcharge"})
assert coefficients(rewritten("2013.csv", blanks, lambda text: text.replace("\n", "\n\n", 1))) == expected
new = rewritten("2019.csv", lambda row: {**row, "congestion_surcharge": "2.5"})
assert coefficients(new) == expected

lacking = rewritten("lacking.csv", renamed(tip_amount="gratuity"))
assert "lacking.csv has no column tip_amount or tip_amt; it has: vendorid" in coefficients(lacking)
texts = rewritten("texts.csv", lambda row: {**row, "trip_distance": "far"})
assert "texts.csv: the column trip_distance does not hold numbers" in coefficients(texts)
assert "no such file" in subprocess.run(
    [sys.executable, str(EXAMPLES / "regression.py"), "--input", str(folder / "none.csv")], capture_output=True, text=True
).stderr
regression.flights(folder / "twice.csv", 62_000_000)
# The same records twice lie on the same line.
assert restarts.shortened(coefficients(folder / "twice.csv", "flights")) == answer
assert not list(folder.glob("remanent-*")), "something was left behind"
