"""Conversion of metadata's entries to storage's changes, and back."""

from hypothesis import given

from penstock.storage.entries import change_of, entry_of
from support.changes import changes


@given(changes)
def test_an_entry_comes_back(change):
    assert change_of(entry_of(change)) == change
