"""Stop strings in pieces of text against the whole text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from luminal.models.stops import Stops

TEXT = st.text("ab", max_size=12)


@given(st.lists(TEXT, max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_pieces_give_the_whole_text_up_to_the_first_string(
    pieces: list[str], strings: list[str]
) -> None:
    stops, found = Stops(strings), ""
    whole = "".join(pieces)
    for piece in pieces:
        found += stops.push(piece)
        assert whole.startswith(found)
    found += stops.finish()
    places = [whole.find(each) for each in strings if each in whole]
    if places and len(strings) == 1:  # of several, one that begins later may be whole before
        assert found == whole[: places[0]]
    if not places:
        assert (found, stops.found) == (whole, None)
    else:
        assert stops.found in strings
        assert whole.startswith(found + stops.found)


def test_only_what_may_be_a_string_is_held_back() -> None:
    stops = Stops(["###", "END"])
    assert [stops.push(piece) for piece in ("a #", "#", "b E", "N", "D c")] == [
        "a ",
        "",
        "##b ",
        "",
        "",
    ]
    assert (stops.found, stops.finish(), stops.push("more")) == ("END", "", "")
