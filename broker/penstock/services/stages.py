"""Stages: rows that are not visible yet. A listener stages and decides them once it knows where the stage is."""

from contextlib import suppress
from dataclasses import dataclass

from penstock.model.errors import NotFoundError, PreconditionFailedError
from penstock.model.names import check_name, vhost_name
from penstock.services.ended_stages import EndedStages
from penstock.services.principal import Principal
from penstock.services.token_sessions import TokenSessions
from penstock.services.verbs import changing, reading, repeated
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.stages import StageStatus


@dataclass(frozen=True, slots=True)
class StageTarget:
    """Where the rows of a stage go: a stream, or an exchange with a routing key."""

    stream: str = ""
    exchange: str = ""
    routing_key: str = ""


@dataclass(frozen=True, slots=True)
class OpenedStage:
    """Where a stage is: the number of its queue, and the exchange and routing key that its rows go to."""

    vhost: str
    queue_id: int
    exchange: str
    routing_key: str


class StageVerbs:
    def __init__(self, vhosts: AllVhosts, tokens: TokenSessions, ended: EndedStages) -> None:
        self._vhosts = vhosts
        self._tokens = tokens
        self._ended = ended

    @repeated
    async def open_stage(
        self, principal: Principal, vhost: str, name: str, target: StageTarget, *, again: bool = False
    ) -> OpenedStage:
        """Admit a principal that may publish to the target; the stage is made when it is not there."""
        found = self._vhosts.get(vhost_name(vhost))
        rights = principal.in_vhost(found.name)
        self._ended.check(principal.name, found.name, name)
        queue_id, goal = await found.stages.open(rights, name, target.stream, target.exchange, target.routing_key)
        try:
            self._ended.check(principal.name, found.name, name)
        except PreconditionFailedError:
            # It was ended meanwhile, perhaps before it was made.
            with suppress(NotFoundError):
                await found.stages.delete(rights, name)
            raise
        if not again:
            self._tokens.opened(principal)
        return OpenedStage(found.name, queue_id, goal.exchange, goal.routing_key)

    @reading
    async def list_stages(self, principal: Principal, vhost: str) -> list[StageStatus]:
        """Return them in the order of their names."""
        found = self._vhosts.get(vhost_name(vhost))
        return await found.stages.statuses(principal.in_vhost(found.name))

    @changing("DeleteStage", "vhost", "name")
    async def delete_stage(self, principal: Principal, vhost: str, name: str, *, ended: bool = False) -> int:
        """Return the number of rows that were deleted with it. With `ended` the user cannot open it for an hour."""
        found = self._vhosts.get(vhost_name(vhost))
        if ended:
            check_name("stage", name)
            self._ended.add(principal.name, found.name, name)
        return await found.stages.delete(principal.in_vhost(found.name), name)
