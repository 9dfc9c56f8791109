"""A message that an ended publisher did not take goes to another one, and a second end is the broker's answer."""

import pytest

from penstock.client.errors import NotFoundError
from penstock.client.publishing import NothingSentError, Publishing, publish_anew

GONE = NotFoundError("vhost 'gone' not found; create it first or check the name")


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_a_message_is_tried_with_two_publishers(ended: int) -> None:
    publishers = [Publishing.__new__(Publishing) for _ in range(3)]
    found, tried = iter(publishers), []

    def publish(publisher: Publishing) -> None:
        tried.append(publisher)
        if len(tried) <= ended:
            raise NothingSentError(GONE)

    if ended == 2:
        with pytest.raises(NotFoundError, match="vhost 'gone' not found"):
            publish_anew(lambda: next(found), publish)
    else:
        publish_anew(lambda: next(found), publish)

    assert tried == publishers[: min(ended + 1, 2)]
