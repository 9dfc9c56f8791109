"""Names in pages."""

from penstock.metadata.name_index import NameIndex


def test_pages_follow_each_other_without_gap_or_overlap() -> None:
    names = [f"n{number:05}" for number in range(2_055)]
    index = NameIndex(reversed(names))

    seen: list[str] = []
    while page := index.page(seen[-1] if seen else None, 100):
        seen += page

    assert seen == names


def test_a_page_goes_on_where_its_name_was_deleted() -> None:
    index = NameIndex(["a", "b", "c"])
    index.remove("b")

    assert index.page("b", 10) == ["c"]


def test_the_empty_name_is_on_the_first_page_only() -> None:
    index = NameIndex(["", "a"])

    assert index.page(None, 10) == ["", "a"]
    assert index.page("", 10) == ["a"]


def test_an_empty_index_has_empty_pages() -> None:
    assert NameIndex().page(None, 10) == []
    assert NameIndex().page("a", 10) == []
