package cases;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Exchanges, queues and bindings, and how wrong declarations are refused. */
class TopologyCases extends WithChannel {
    @ParameterizedTest
    @ValueSource(strings = {"direct", "topic", "fanout", "headers"})
    void anExchangeRoutesByItsType(String type) throws Exception {
        Map<String, Object> arguments = Map.of("x-match", "all", "colour", "red");
        BasicProperties red = new BasicProperties.Builder().headers(Map.of("colour", "red")).build();
        channel.exchangeDeclare(name, type, false, true, null);
        channel.queueBind(queue(), name, type.equals("topic") ? "a.*" : "a.b", arguments);

        channel.basicPublish(name, "a.b", red, bytes("comes"));
        channel.basicPublish(name, "other", null, bytes("comes from a fanout"));

        assertEquals("comes", text(channel.basicGet(name, true).getBody()));
        assertEquals(type.equals("fanout") ? 1 : 0, channel.messageCount(name));
    }

    @Test
    void exchangesAreBoundToExchanges() throws Exception {
        channel.exchangeDeclare(name, "fanout", false, true, null);
        channel.exchangeDeclare(name + "-to", "fanout", false, true, null);
        channel.exchangeBind(name + "-to", name, "");
        channel.queueBind(queue(), name + "-to", "");

        channel.basicPublish(name, "", null, bytes("through"));

        assertEquals("through", text(channel.basicGet(name, true).getBody()));
        channel.exchangeUnbind(name + "-to", name, "");
    }

    @Test
    void anAlternateExchangeGetsTheMessagesThatMatchNothing() throws Exception {
        channel.exchangeDeclare(name + "-rest", "fanout", false, true, null);
        channel.queueBind(queue(), name + "-rest", "");
        channel.exchangeDeclare(name, "direct", false, false, Map.of("alternate-exchange", name + "-rest"));

        channel.basicPublish(name, "nothing", null, bytes("rest"));

        assertEquals("rest", text(channel.basicGet(name, true).getBody()));
        channel.exchangeDelete(name);
    }

    @Test
    void anInternalExchangeTakesNoMessagesOfClients() throws Throwable {
        Channel declaring = connection.createChannel();
        declaring.exchangeDeclare(name, "fanout", false, false, true, null);

        Refusal refusal = closeAfter(channel, () -> channel.basicPublish(name, "", null, bytes("body")));

        assertRefused(403, "ACCESS_REFUSED - cannot publish to internal exchange '" + name + "' in vhost '/'", refusal);
        declaring.exchangeDelete(name);
    }

    @Test
    void declarationsWithoutAnAnswerCount() throws Exception {
        channel.exchangeDeclareNoWait(name, "fanout", false, true, false, null);
        channel.queueDeclareNoWait(name, false, true, false, null);
        channel.queueBindNoWait(name, name, "", null);

        channel.basicPublish(name, "", null, bytes("body"));

        assertEquals("body", text(channel.basicGet(name, true).getBody()));
    }

    @Test
    void theBrokerNamesAQueueThatHasNoName() throws Exception {
        assertTrue(channel.queueDeclare().getQueue().startsWith("amq.gen-"));
    }

    @Test
    void aQueueThatDoesNotExistIsNotFound() {
        Refusal refusal = refusalOf(() -> channel.queueDeclarePassive(name));

        assertRefused(404, "NOT_FOUND - no queue '" + name + "' in vhost '/'", refusal);
    }

    @Test
    void anotherDeclarationOfAQueueIsRefused() throws Exception {
        queue();

        Refusal refusal = refusalOf(() -> queue(Map.of("x-max-priority", 5)));

        assertEquals(406, refusal.code());
        assertTrue(refusal.text().startsWith("PRECONDITION_FAILED - inequivalent arg 'x-max-priority' for queue"));
    }

    @Test
    void anExclusiveQueueIsLockedForOtherConnections() throws Exception {
        queue();
        try (Connection other = factory().newConnection()) {
            Channel elsewhere = other.createChannel();

            assertEquals(405, refusalOf(() -> elsewhere.queueDeclarePassive(name)).code());
        }
    }

    @Test
    void aQueueThatIsUsedOrNotEmptyIsKept() throws Exception {
        fill(queue(), "body");
        Channel second = connection.createChannel();

        assertEquals(406, refusalOf(() -> channel.queueDelete(name, false, true)).code());
        second.basicConsume(name, false, (tag, delivery) -> {}, tag -> {});
        Channel third = connection.createChannel();
        assertEquals(406, refusalOf(() -> third.queueDelete(name, true, false)).code());
    }

    @Test
    void aPurgeSaysHowManyItRemoved() throws Exception {
        fill(queue(), "a", "b", "c");

        assertEquals(3, channel.queuePurge(name).getMessageCount());
        assertEquals(0, channel.queueDelete(name).getMessageCount());
    }
}
