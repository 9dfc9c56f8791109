"""The AMQP front end: from the questions of its listener to verbs, and from their outcomes to answers."""

from penstock.model.arguments import Arguments
from penstock.model.field_table import encode_table
from penstock.model.names import ConnectionId
from penstock.native import (
    BindingChange,
    EndQueues,
    Enter,
    ExchangeDeclare,
    ExchangeDelete,
    FindLeader,
    NamesUser,
    OpenConsume,
    OpenGet,
    OpenPublish,
    PermitExchange,
    PermitKeys,
    Question,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    Renew,
)
from support.grpc_fakes import FakeCall, World, play

ADMIN = "admin\0admin"


def amqp(question: Question, authorization: str = ADMIN, connection: int = 1) -> FakeCall:
    return FakeCall(question, protocol="amqp", authorization=authorization, connection=connection)


def declare(name: str, *, durable: bool = True, exclusive: bool = False, passive: bool = False) -> QueueDeclare:
    return QueueDeclare(
        vhost="/", name=name, durable=durable, exclusive=exclusive, passive=passive, arguments=encode_table({})
    )


def bind(queue: str, key: str, *, unbind: bool = False, arguments: Arguments | None = None) -> BindingChange:
    table = encode_table(arguments or {})
    return BindingChange(
        vhost="/", source="amq.topic", destination=queue, routing_key=key, arguments=table, unbind=unbind
    )


def code_of(result: tuple[object, ...]) -> tuple[object, int]:
    assert result[0] == "refuse", result
    assert isinstance(result[3], bytes)
    return result[1], int.from_bytes(result[3], "big")


def test_a_client_logs_in_with_its_password() -> None:
    async def scenario(world: World) -> None:
        assert await world.ask(amqp(Enter())) == ("admit", "", 0)
        for authorization in ("admin\0wrong", "admin", "", "\0admin"):
            assert code_of(await world.ask(amqp(Enter(), authorization))) == ("unauthenticated", 403)

    play(scenario)


def users_of(world: World, connection: int) -> tuple[str, ...]:
    found = world.services.connections.find(ConnectionId(connection))
    assert found is not None
    return found.users


async def entered(world: World, authorization: str, connection: int) -> None:
    assert (await world.ask(amqp(OpenPublish(vhost="/"), authorization, connection)))[0] == "admit"


def test_a_token_takes_the_place_of_a_token_of_the_same_user_alone() -> None:
    """A password took its place, and the log-in expired no more."""

    async def scenario(world: World) -> None:
        soon, later = (world.clock.ms + ms for ms in (600_000, 900_000))
        for connection, secret in enumerate(("admin", "wrong", f"reader.{later}", ""), 1):
            await entered(world, f"admin\0admin.{soon}", connection)
            refused = await world.ask(amqp(Renew(), f"admin\0{secret}", connection))
            assert code_of(refused) == ("unauthenticated", 403), secret
            assert users_of(world, connection) == ("admin",)

        await entered(world, f"admin\0admin.{soon}", 9)
        renewed = amqp(Renew(), f"admin\0admin.{later}", 9)
        assert await world.ask(renewed) == ("admit", "", 0)
        assert renewed.user == "admin"

    play(scenario)


def test_after_a_log_in_by_a_password_only_a_password_takes_its_place() -> None:
    """A token took its place: the connection then ended when the token expired."""

    async def scenario(world: World) -> None:
        later = world.clock.ms + 900_000
        await entered(world, ADMIN, 1)
        for secret in ("wrong", f"admin.{later}", f"reader.{later}", ""):
            renewed = amqp(Renew(), f"admin\0{secret}")
            assert await world.ask(renewed) == ("admit", "", 0)
            assert renewed.user == "", secret
            assert users_of(world, 1) == ("admin",)

        renewed = amqp(Renew(), ADMIN)
        assert await world.ask(renewed) == ("admit", "", 0)
        assert renewed.user == "admin"

    play(scenario)


def test_a_certificate_that_names_no_user_is_no_failed_log_in() -> None:
    async def scenario(world: World) -> None:
        for authorization, certificate in (("", b"DER"), ("", b""), (ADMIN, b"DER")):
            call = amqp(NamesUser(), authorization)
            call.certificate = certificate
            assert code_of(await world.ask(call)) == ("unauthenticated", 403)
        assert world.log_ins.counts()["log_ins_refused_total"] == 0

    play(scenario)


def test_queues_are_declared_counted_purged_and_deleted() -> None:
    async def scenario(world: World) -> None:
        assert await world.ask(amqp(declare("jobs"))) == ("changed", "jobs", 0, 0)
        assert await world.ask(amqp(declare("jobs", passive=True))) == ("changed", "jobs", 0, 0)
        made = await world.ask(amqp(declare("")))
        assert str(made[1]).startswith("amq.gen-")
        assert await world.ask(amqp(QueuePurge(vhost="/", name="jobs"))) == ("changed", "", 0, 0)
        assert await world.ask(amqp(QueueDelete(vhost="/", name="jobs"))) == ("changed", "", 0, 0)
        missing = await world.ask(amqp(declare("jobs", passive=True)))
        assert code_of(missing) == ("not_found", 404)
        assert missing[2] == "no queue 'jobs' in vhost '/'"

    play(scenario)


def test_a_declaration_that_differs_and_a_locked_queue_have_their_codes() -> None:
    async def scenario(world: World) -> None:
        await world.ask(amqp(declare("jobs")))
        assert code_of(await world.ask(amqp(declare("jobs", durable=False)))) == ("precondition_failed", 406)
        await world.ask(amqp(declare("mine", exclusive=True)))
        locked = await world.ask(amqp(declare("mine", passive=True), connection=2))
        assert code_of(locked) == ("precondition_failed", 405)

    play(scenario)


def test_the_exclusive_queues_of_a_connection_go_before_its_close_is_confirmed() -> None:
    async def scenario(world: World) -> None:
        await world.ask(amqp(declare("mine", exclusive=True)))
        await world.ask(amqp(declare("other", exclusive=True), connection=2))

        assert await world.ask(amqp(EndQueues())) == ("admit", "", 0)

        assert (await world.ask(amqp(declare("mine", exclusive=True), connection=2)))[0] == "changed"
        assert code_of(await world.ask(amqp(declare("other", exclusive=True)))) == ("precondition_failed", 405)

    play(scenario)


def test_exchanges_are_declared_bound_and_deleted() -> None:
    async def scenario(world: World) -> None:
        table = encode_table({"alternate-exchange": "amq.fanout"})
        wanted = ExchangeDeclare(vhost="/", name="events", kind="topic", durable=True, arguments=table)
        assert await world.ask(amqp(wanted)) == ("changed", "", 0, 0)
        await world.ask(amqp(declare("jobs")))
        assert await world.ask(amqp(bind("jobs", "a.#"))) == ("changed", "", 0, 0)
        assert await world.ask(amqp(bind("jobs", "a.#", unbind=True))) == ("changed", "", 0, 0)
        assert code_of(await world.ask(amqp(bind("absent", "a.#")))) == ("not_found", 404)
        assert await world.ask(amqp(ExchangeDelete(vhost="/", name="events"))) == ("changed", "", 0, 0)

    play(scenario)


def test_publishers_and_consumers_are_admitted() -> None:
    async def scenario(world: World) -> None:
        await world.ask(amqp(declare("jobs")))
        assert await world.ask(amqp(OpenPublish(vhost="/"))) == ("admit", "/", 0)
        assert await world.ask(amqp(PermitExchange(vhost="/", exchange="amq.topic"))) == ("admit", "/", 0)
        keys = PermitKeys(vhost="/", exchange="amq.topic", keys=["a", "b"])
        assert await world.ask(amqp(keys)) == ("keys", True, True)
        assert (await world.ask(amqp(OpenConsume(vhost="/", queue="jobs"))))[0] == "admit"
        absent = await world.ask(amqp(OpenPublish(vhost="absent")))
        assert code_of(absent)[1] == 404

    play(scenario)


def test_arguments_that_nest_too_deep_are_refused() -> None:
    async def scenario(world: World) -> None:
        table = b""
        for _ in range(60):
            table = b"\x01nF" + len(table).to_bytes(4, "big") + table
        wanted = QueueDeclare(vhost="/", name="deep", arguments=table)
        assert code_of(await world.ask(amqp(wanted))) == ("invalid_argument", 406)

    play(scenario)


def text_of(result: tuple[object, ...]) -> tuple[int, object]:
    """Return the code and the text of a refusal."""
    return code_of(result)[1], result[2]


def test_what_is_not_there_counts_as_deleted() -> None:
    async def scenario(world: World) -> None:
        await world.ask(amqp(declare("jobs")))
        for gone in (
            QueueDelete(vhost="/", name="absent"),
            ExchangeDelete(vhost="/", name="absent"),
            bind("jobs", "a.#", unbind=True),
            bind("absent", "a.#", unbind=True),
        ):
            assert await world.ask(amqp(gone)) == ("changed", "", 0, 0)
        gone_vhost = await world.ask(amqp(QueueDelete(vhost="nowhere", name="jobs")))
        assert text_of(gone_vhost) == (320, "vhost 'nowhere' is deleted")

    play(scenario)


def test_names_and_types_that_nobody_may_use_have_rabbitmq_s_texts() -> None:
    async def scenario(world: World) -> None:
        exchange = ExchangeDeclare(vhost="/", name="amq.mine", kind="topic", arguments=encode_table({}))
        unknown = ExchangeDeclare(vhost="/", name="x", kind="x-unknown", arguments=encode_table({}))
        nameless = ExchangeDeclare(vhost="/", name="", kind="direct", arguments=encode_table({}))
        internal = ExchangeDeclare(vhost="/", name="inner", kind="topic", internal=True, arguments=encode_table({}))
        await world.ask(amqp(internal))
        cases: list[tuple[Question, int, str]] = [
            (declare("amq.mine"), 403, "queue name 'amq.mine' contains reserved prefix 'amq.*'"),
            (exchange, 403, "exchange name 'amq.mine' contains reserved prefix 'amq.*'"),
            (unknown, 503, "unknown exchange type 'x-unknown'"),
            (nameless, 403, "operation not permitted on the default exchange"),
            (
                ExchangeDelete(vhost="/", name="amq.topic"),
                403,
                "deletion of system exchange 'amq.topic' in vhost '/' not allowed",
            ),
            (
                PermitExchange(vhost="/", exchange="inner"),
                403,
                "cannot publish to internal exchange 'inner' in vhost '/'",
            ),
        ]
        for question, code, text in cases:
            assert text_of(await world.ask(amqp(question))) == (code, text)

    play(scenario)


def test_an_unknown_exchange_type_is_refused_before_the_rights_and_the_name_are_checked() -> None:
    async def scenario(world: World) -> None:
        arguments = encode_table({})
        await world.ask(amqp(ExchangeDeclare(vhost="/", name="events", kind="topic", arguments=arguments)))
        for name, kind, user in (
            ("events", "x-unknown", ADMIN),
            ("", "x-unknown", ADMIN),
            ("amq.topic", "x-jms-topic", ADMIN),
            ("other", "x" * 200, "reader\0reader"),
        ):
            refused = await world.ask(amqp(ExchangeDeclare(vhost="/", name=name, kind=kind, arguments=arguments), user))
            assert text_of(refused) == (503, f"unknown exchange type '{kind}'")
        passive = ExchangeDeclare(vhost="/", name="events", kind="x-unknown", passive=True, arguments=arguments)
        assert await world.ask(amqp(passive)) == ("changed", "", 0, 0)

    play(scenario)


def test_messages_of_a_quorum_queue_with_a_single_active_consumer_cannot_be_got() -> None:
    async def scenario(world: World) -> None:
        for name, kind in (("ordered", "quorum"), ("plain", "classic")):
            arguments = encode_table({"x-single-active-consumer": True, "x-queue-type": kind})
            await world.ask(amqp(QueueDeclare(vhost="/", name=name, durable=True, arguments=arguments)))
        refused = await world.ask(amqp(OpenGet(vhost="/", queue="ordered")))
        code, text = text_of(refused)
        assert code == 405
        assert text == (
            "cannot obtain access to locked queue 'ordered' in vhost '/'. basic.get operations are not supported by "
            "quorum queues with single active consumer"
        )
        assert (await world.ask(amqp(OpenConsume(vhost="/", queue="ordered"))))[0] == "admit"
        assert (await world.ask(amqp(OpenGet(vhost="/", queue="plain"))))[0] == "admit"

    play(scenario)


def test_an_exchange_in_use_is_deleted_only_without_that_condition() -> None:
    async def scenario(world: World) -> None:
        await world.ask(amqp(declare("jobs")))
        wanted = ExchangeDeclare(vhost="/", name="events", kind="topic", durable=True, arguments=encode_table({}))
        await world.ask(amqp(wanted))
        bound = BindingChange(
            vhost="/", source="events", destination="jobs", routing_key="a", arguments=encode_table({})
        )
        await world.ask(amqp(bound))
        refused = await world.ask(amqp(ExchangeDelete(vhost="/", name="events", if_unused=True)))
        assert text_of(refused) == (406, "exchange 'events' in vhost '/' in use")
        assert await world.ask(amqp(ExchangeDelete(vhost="/", name="events"))) == ("changed", "", 0, 0)

    play(scenario)


def test_a_broker_alone_knows_no_other_leader() -> None:
    async def scenario(world: World) -> None:
        await world.ask(amqp(OpenPublish(vhost="/")))

        assert await world.ask(amqp(FindLeader(vhost="/", known=""))) == ("leader", None)

    play(scenario)
