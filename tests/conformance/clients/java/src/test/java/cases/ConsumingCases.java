package cases;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Consumers: prefetches, acks, order, priorities, cancellation, dead letters. */
class ConsumingCases extends WithChannel {
    @Test
    void messagesComeInOrderWithAPrefetchAndAcks() throws Exception {
        String[] bodies = IntStream.range(0, 500).mapToObj(String::valueOf).toArray(String[]::new);
        fill(queue(), bodies);
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();

        channel.basicQos(10);
        channel.basicConsume(name, false, (tag, delivery) -> {
            seen.add(text(delivery.getBody()));
            channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }, tag -> {});

        for (String body : bodies) {
            assertEquals(body, seen.take());
        }
    }

    @Test
    void noMoreComeThanThePrefetchAllows() throws Exception {
        fill(queue(), "0", "1", "2", "3", "4");
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        channel.basicQos(2);

        channel.basicConsume(name, false, (tag, delivery) -> seen.add(text(delivery.getBody())), tag -> {});

        while (seen.size() < 2) {
            Thread.sleep(10);
        }
        assertEquals(3, channel.messageCount(name));
        assertEquals(List.of("0", "1"), seen);
    }

    @Test
    void thePrefetchOfAChannelHoldsForItsConsumersTogether() throws Exception {
        fill(queue(), "0", "1", "2", "3", "4");
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        channel.basicQos(3, true);

        for (int number = 0; number < 2; number++) {
            channel.basicConsume(name, false, (tag, delivery) -> seen.add(text(delivery.getBody())), tag -> {});
        }

        while (seen.size() < 3) {
            Thread.sleep(10);
        }
        assertEquals(2, channel.messageCount(name));
        assertEquals(3, seen.size());
    }

    @Test
    void oneAckSettlesAllBeforeIt() throws Exception {
        fill(queue(), "0", "1", "2");
        List<Delivery> taken = take(channel, name, 3);

        channel.basicAck(taken.get(1).getEnvelope().getDeliveryTag(), true);
        channel.basicRecover(true);

        GetResponse left = channel.basicGet(name, true);
        assertEquals("2", text(left.getBody()));
        assertTrue(left.getEnvelope().isRedeliver());
        assertEquals(0, left.getMessageCount());
    }

    @Test
    void aNackReturnsMessagesToTheirPlaces() throws Exception {
        fill(queue(), "0", "1", "2");
        List<Delivery> taken = take(channel, name, 3);

        channel.basicNack(taken.get(1).getEnvelope().getDeliveryTag(), true, true);

        assertEquals(List.of("0", "1"), texts(take(channel, name, 2)));
    }

    @Test
    void anUnknownDeliveryTagClosesTheChannel() throws Throwable {
        Refusal refusal = closeAfter(channel, () -> channel.basicAck(7, false));

        assertRefused(406, "PRECONDITION_FAILED - unknown delivery tag 7", refusal);
    }

    @Test
    void aClosedChannelReturnsItsMessages() throws Exception {
        fill(queue(), "0", "1");
        Channel other = connection.createChannel();
        take(other, name, 2);

        other.close();

        List<Delivery> again = take(channel, name, 2);
        assertEquals(List.of("0", "1"), texts(again));
        assertTrue(again.stream().allMatch(delivery -> delivery.getEnvelope().isRedeliver()));
    }

    @Test
    void aConsumerIsCancelledWhenItsQueueIsDeleted() throws Exception {
        BlockingQueue<String> cancelled = new LinkedBlockingQueue<>();
        String tag = channel.basicConsume(queue(), true, (consumer, delivery) -> {}, cancelled::add);

        channel.queueDelete(name);

        assertEquals(tag, cancelled.take());
        assertTrue(channel.isOpen());
    }

    @Test
    void anExclusiveConsumerIsAlone() throws Exception {
        channel.basicConsume(queue(), true, "", false, true, null, (tag, delivery) -> {}, tag -> {});
        Channel other = connection.createChannel();

        Refusal refusal = refusalOf(() -> other.basicConsume(name, true, (tag, delivery) -> {}, tag -> {}));

        assertEquals(403, refusal.code());
        assertTrue(refusal.text().startsWith("ACCESS_REFUSED - queue '" + name + "' in vhost '/' in exclusive use"));
    }

    @Test
    void aConsumerOfAHigherPriorityComesFirst() throws Exception {
        queue();
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        for (int priority : new int[] {1, 5, 3}) {
            String title = "priority " + priority;
            Map<String, Object> arguments = Map.of("x-priority", priority);
            channel.basicConsume(name, true, arguments, (tag, delivery) -> seen.add(title), tag -> {});
        }

        fill(name, "a", "b");

        assertEquals(List.of("priority 5", "priority 5"), List.of(seen.take(), seen.take()));
    }

    @Test
    void theNextConsumerBecomesTheSingleActiveOne() throws Exception {
        queue(Map.of("x-single-active-consumer", true));
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        String first = channel.basicConsume(name, true, (tag, delivery) -> seen.add("first"), tag -> {});
        channel.basicConsume(name, true, (tag, delivery) -> seen.add("second"), tag -> {});

        fill(name, "a");
        assertEquals("first", seen.take());
        channel.basicCancel(first);
        fill(name, "b");

        assertEquals("second", seen.take());
    }

    @Test
    void messagesOfAHigherPriorityComeFirst() throws Exception {
        queue(Map.of("x-max-priority", 9));
        for (int priority : new int[] {1, 9, 5}) {
            BasicProperties properties = new BasicProperties.Builder().priority(priority).build();
            channel.basicPublish("", name, properties, bytes(String.valueOf(priority)));
        }

        assertEquals(List.of("9", "5", "1"), texts(take(channel, name, 3)));
    }

    @Test
    void aRejectedMessageBecomesADeadLetter() throws Exception {
        String letters = channel.queueDeclare().getQueue();
        queue(Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", letters));
        fill(name, "body");

        channel.basicReject(channel.basicGet(name, false).getEnvelope().getDeliveryTag(), false);

        Map<String, Object> headers = await(channel, letters).getProps().getHeaders();
        Map<?, ?> death = (Map<?, ?>) ((List<?>) headers.get("x-death")).get(0);
        assertEquals("rejected", death.get("reason").toString());
        assertEquals(name, death.get("queue").toString());
        assertEquals(1L, death.get("count"));
        assertEquals("rejected", headers.get("x-first-death-reason").toString());
    }

    @Test
    void anExpiredMessageBecomesADeadLetter() throws Exception {
        String letters = channel.queueDeclare().getQueue();
        queue(Map.of(
                "x-message-ttl", 10, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", letters));

        fill(name, "body");

        GetResponse letter = await(channel, letters);
        assertEquals("expired", letter.getProps().getHeaders().get("x-first-death-reason").toString());
    }

    @Test
    void getSaysHowManyAreLeft() throws Exception {
        queue();
        assertNull(channel.basicGet(name, true));

        fill(name, "0", "1", "2");

        GetResponse message = channel.basicGet(name, true);
        assertEquals(2, message.getMessageCount());
        assertFalse(message.getEnvelope().isRedeliver());
    }

    @Test
    void aStreamIsReadFromAnOffsetAsOftenAsOneLikes() throws Exception {
        channel.queueDeclare(name, true, false, false, Map.of("x-queue-type", "stream"));
        fill(name, "0", "1", "2");
        channel.basicQos(10);

        for (int turn = 0; turn < 2; turn++) {
            BlockingQueue<String> seen = new LinkedBlockingQueue<>();
            Map<String, Object> arguments = Map.of("x-stream-offset", "first");
            String tag = channel.basicConsume(name, false, arguments, (consumer, delivery) -> {
                seen.add(text(delivery.getBody()));
                channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            }, consumer -> {});
            assertEquals(List.of("0", "1", "2"), List.of(seen.take(), seen.take(), seen.take()));
            channel.basicCancel(tag);
        }

        channel.queueDelete(name);
    }
}
