"""Users as a value: changes return new ones and leave the old unchanged."""

import pytest

from penstock.identity import Permission, TopicPermission, Users
from penstock.identity.passwords import hash_password
from penstock.model.errors import InvalidArgumentError, NotFoundError, PreconditionFailedError, TooLargeError
from penstock.model.records import Access

DIGEST = hash_password("secret", bytes(16))
ALL = Permission.compile(".*", ".*", ".*")


def test_putting_a_user_leaves_the_old_value_alone():
    before = Users()

    after = before.put("a", ["administrator"], DIGEST)

    assert len(before) == 0
    assert after.get("a").is_administrator


def test_a_change_without_a_password_keeps_it_and_the_permissions():
    users = Users().put("a", [], DIGEST).set_permission("a", "/", ALL)

    changed = users.put("a", ["monitoring"], None).get("a")

    assert changed.password_hash == DIGEST
    assert changed.permissions == {"/": ALL}
    assert [tag.value for tag in changed.tags] == ["monitoring"]


def test_a_change_without_tags_keeps_them():
    users = Users().put("a", ["monitoring"], DIGEST)

    assert [tag.value for tag in users.put("a", None, None).get("a").tags] == ["monitoring"]
    assert users.put("a", [], None).get("a").tags == ()
    assert users.put("b", None, None).get("b").tags == ()


def test_the_last_administrator_stays_one_unless_it_is_forced():
    users = Users().put("a", ["administrator"], DIGEST).put("b", [], DIGEST)

    for change in (lambda: users.delete("a"), lambda: users.put("a", ["monitoring"], None)):
        with pytest.raises(PreconditionFailedError, match="only user with the tag administrator"):
            change()
    assert users.delete("a", force=True).find("a") is None
    assert not users.put("a", [], None, force=True).get("a").is_administrator
    two = users.put("b", ["administrator"], None)
    assert two.delete("a").get("b").is_administrator
    assert users.put("a", None, None).get("a").is_administrator


def test_topic_permissions_narrow_what_the_permission_opens_and_go_with_their_vhost():
    topic = TopicPermission.compile("a", "/", "app.*", "")
    users = Users().put("a", [], DIGEST).set_permission("a", "/", ALL).set_topic("a", "/", "logs", topic)

    allowance = users.get("a").allowance("/")
    assert allowance is not None
    assert allowance.narrows_keys("logs")
    assert not allowance.narrows_keys("others")
    assert allowance.allows_key(Access.WRITE, "logs", "app.error")
    assert not allowance.allows_key(Access.WRITE, "logs", "db.error")
    assert allowance.allows_key(Access.WRITE, "others", "db.error")
    assert users.put("a", ["monitoring"], None).get("a").topics == users.get("a").topics
    assert users.without_vhost("/").get("a").topics == {}


def test_topic_permissions_are_cleared_one_by_one_or_all_at_once():
    topic = TopicPermission.compile("a", "/", "app.*", "")
    users = Users().put("a", [], DIGEST)
    for exchange in ("one", "two", "three"):
        users = users.set_topic("a", "/", exchange, topic)

    users = users.delete_topics("a", "/", "one")
    assert list(users.get("a").topics["/"]) == ["two", "three"]
    assert users.delete_topics("a", "/", None).get("a").topics == {}
    with pytest.raises(NotFoundError):
        users.delete_topics("a", "/", "one")


def test_a_user_added_without_a_password_has_none():
    assert Users().put("a", [], None).get("a").password_hash == ""


@pytest.mark.parametrize("name", ["", "a:b", "a\nb"])
def test_a_name_that_cannot_be_is_refused(name):
    with pytest.raises(InvalidArgumentError):
        Users().put(name, [], DIGEST)


def test_a_name_that_is_too_long_is_refused():
    with pytest.raises(TooLargeError):
        Users().put("ü" * 128, [], DIGEST)


def test_an_unknown_tag_is_refused_by_name():
    with pytest.raises(InvalidArgumentError, match="'boss'"):
        Users().put("a", ["boss"], DIGEST)


def test_what_is_not_there_cannot_be_changed():
    users = Users().put("a", [], DIGEST)

    for change in (
        lambda: users.delete("b"),
        lambda: users.set_permission("b", "/", ALL),
        lambda: users.delete_permission("a", "/"),
    ):
        with pytest.raises(NotFoundError):
            change()


def test_a_vhost_that_goes_takes_its_permissions_along():
    users = Users().put("a", [], DIGEST).set_permission("a", "/", ALL).set_permission("a", "x", ALL)

    assert list(users.without_vhost("x").get("a").permissions) == ["/"]


def test_merging_puts_users_of_the_same_name_in_their_place():
    users = Users().put("a", [], DIGEST).put("b", [], DIGEST)
    other = Users().put("b", ["administrator"], "").put("c", [], "")

    merged = users.merge(other.all())

    assert [user.name for user in merged.all()] == ["a", "b", "c"]
    assert merged.get("b").is_administrator


def test_a_vhost_is_seen_by_those_who_may_enter_and_by_caretakers():
    users = (
        Users().put("in", [], "").set_permission("in", "x", ALL).put("out", [], "").put("admin", ["administrator"], "")
    )

    assert [user.name for user in users.all() if user.sees_vhost("x")] == ["in", "admin"]
