"""The cache of verified credentials is bounded, and drops an entry with the password."""

from penstock.identity import CredentialCache

KEY = bytes(32)


def test_what_was_remembered_is_known_and_nothing_else():
    cache = CredentialCache(KEY, 10)

    cache.remember(cache.digest("a", "bc", "h"))

    assert cache.knows(cache.digest("a", "bc", "h"))
    assert not cache.knows(cache.digest("ab", "c", "h"))
    assert not cache.knows(cache.digest("a", "bc", "other"))


def test_the_least_recently_used_goes_first():
    cache = CredentialCache(KEY, 2)
    one, two, three = (cache.digest(name, "p", "h") for name in "abc")
    cache.remember(one)
    cache.remember(two)
    assert cache.knows(one)

    cache.remember(three)

    assert len(cache) == 2
    assert [cache.knows(each) for each in (one, two, three)] == [True, False, True]


def test_another_key_gives_another_digest():
    assert CredentialCache(KEY, 1).digest("a", "b", "c") != CredentialCache(bytes([1]) * 32, 1).digest("a", "b", "c")
