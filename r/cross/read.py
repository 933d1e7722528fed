"""Reads what write.R beside this has written."""

import sys

import numpy as np

import remanent


def items(value):
    """The items of anything that has some, None where one is missing."""
    if hasattr(value, "filled"):
        return value.tolist()
    return [None if item is None or item != item else item for item in list(value)]


with remanent.open(sys.argv[1], "r") as pool:
    assert items(pool["x"]) == [1.5, None, 3.0]
    assert items(pool["whole"]) == [1, None, 3]
    assert [item if item is None else bool(item) for item in items(pool["flags"])] == [True, None, False]
    assert pool["grid"].shape == (2, 3)
    assert np.array_equal(pool["matrix"], [[1, 3, 5], [2, 4, 6]])
    assert items(pool["text"]) == ["größe", None, "a"]
    assert items(pool["repeated"]) == ["u", None, "grö"] * 20
    assert items(pool["kind"]) == ["u", None, "v"]
    assert pool["values"]["a"].tolist() == [1.0] and pool["values"]["b"][1] is None
    frame = pool["frame"]
    assert list(frame["id"]) == [1, 2] and list(frame["name"]) == ["a", "b"]
    assert pool["raw"].tolist() == [0, 1, 2, 3]
    assert pool["turn"].tolist() == [1 + 2j]
    assert pool["day"].dtype == "M8[D]" and str(pool["day"][0]) == "2024-02-29" and np.isnat(pool["day"][1])
    moment = pool["moment"]
    if hasattr(moment, "tz_convert"):  # of pandas, where that is installed
        assert str(moment.tz) == "Europe/Berlin"
        moment = moment.tz_convert("UTC").tz_localize(None)
    moment = np.asarray(moment).astype("M8[us]")
    assert str(moment[0]) == "2024-02-29T11:00:00.500000" and np.isnat(moment[1])
    assert pool["span"][0] == np.timedelta64(90, "s") and np.isnat(pool["span"][1])
    assert items(pool["level"]) == ["hi", "lo", None]
    assert not hasattr(pool["level"], "categories") or pool["level"].ordered
    assert items(pool["odd"]) == [0, 5]
    assert pool["nothing"] is None
    assert [item if item is None else list(item)[0] for item in pool["unnamed"]] == [1.0, "two", None]
    if "large" in pool:
        assert items(pool["large"]) == [2**53 + 1, None]
    if "table" in pool:
        assert list(pool["table"]["id"]) == [1, 2] and items(pool["table"]["name"]) == ["a", None]
    # What only R can read is None, and hides nothing else.
    fit = pool["fit"]
    assert len(fit) > 5
