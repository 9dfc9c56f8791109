package cases;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.impl.LongStringHelper;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Messages with their properties, confirms and returns. */
class PublishingCases extends WithChannel {
    @Test
    void allPropertiesComeAsTheyWereSent() throws Exception {
        Map<String, Object> headers = new HashMap<>();
        headers.put("text", LongStringHelper.asLongString("a"));
        headers.put("int", 1);
        headers.put("long", 1L << 40);
        headers.put("short", (short) 7);
        headers.put("byte", (byte) 3);
        headers.put("double", 1.5);
        headers.put("float", 2.5f);
        headers.put("yes", true);
        headers.put("decimal", new BigDecimal("12.34"));
        headers.put("time", new Date(1_700_000_000_000L));
        headers.put("nothing", null);
        headers.put("list", List.of(1, LongStringHelper.asLongString("b")));
        headers.put("inner", Map.of("c", 2));
        BasicProperties sent = new BasicProperties.Builder()
                .contentType("text/plain").contentEncoding("utf-8").headers(headers).deliveryMode(2).priority(3)
                .correlationId("correlation").replyTo("reply").expiration("60000").messageId("message")
                .timestamp(new Date(1_700_000_000_000L)).type("type").userId("guest").appId("app").build();

        channel.basicPublish("", queue(), sent, bytes("body"));

        assertEquals(sent, channel.basicGet(name, true).getProps());
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 131_064, 131_065, 5_000_000})
    void aBodyComesWhole(int size) throws Exception {
        byte[] body = new byte[size];
        for (int at = 0; at < size; at++) {
            body[at] = (byte) at;
        }

        channel.basicPublish("", queue(), null, body);

        assertArrayEquals(body, channel.basicGet(name, true).getBody());
    }

    @Test
    void eachMessageIsConfirmedOnce() throws Exception {
        int count = 1000;
        SortedSet<Long> missing =
                Collections.synchronizedSortedSet(
                        LongStream.rangeClosed(1, count).boxed().collect(Collectors.toCollection(TreeSet::new)));
        CountDownLatch confirmed = new CountDownLatch(count);
        channel.confirmSelect();
        channel.addConfirmListener((tag, multiple) -> {
            List<Long> tags = multiple ? new ArrayList<>(missing.headSet(tag + 1)) : List.of(tag);
            for (long each : tags) {
                assertTrue(missing.remove(each), "confirmed twice: " + each);
                confirmed.countDown();
            }
        }, (tag, multiple) -> {});

        queue();
        for (int number = 0; number < count; number++) {
            channel.basicPublish("", name, null, bytes("body"));
        }
        confirmed.await();

        assertEquals(count, channel.messageCount(name));
    }

    @Test
    void theNumberOfTheNextMessageIsThatOfItsConfirm() throws Exception {
        channel.confirmSelect();
        assertEquals(1, channel.getNextPublishSeqNo());

        channel.basicPublish("", queue(), null, bytes("body"));

        assertTrue(channel.waitForConfirms());
        assertEquals(2, channel.getNextPublishSeqNo());
    }

    @Test
    void aMandatoryMessageWithoutAQueueReturnsBeforeItsConfirm() throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        channel.confirmSelect();
        channel.addReturnListener(back -> seen.add(back.getReplyCode() + " " + back.getReplyText()));
        channel.addConfirmListener((tag, multiple) -> seen.add("confirmed"), (tag, multiple) -> {});

        channel.basicPublish("", name, true, null, bytes("nowhere"));
        channel.waitForConfirmsOrDie();

        assertEquals(List.of("312 NO_ROUTE", "confirmed"), seen);
    }

    @Test
    void aFullQueueNacks() throws Exception {
        queue(Map.of("x-max-length", 1, "x-overflow", "reject-publish"));
        fill(name, "fits");

        channel.confirmSelect();
        channel.basicPublish("", name, null, bytes("does not"));

        assertFalse(channel.waitForConfirms());
    }

    @Test
    void aFullQueueDropsItsOldest() throws Exception {
        queue(Map.of("x-max-length", 2));

        fill(name, "a", "b", "c");

        assertEquals("b", text(channel.basicGet(name, true).getBody()));
    }

    @Test
    void aMessageToAnExchangeThatDoesNotExistClosesTheChannel() throws Throwable {
        Refusal refusal = closeAfter(channel, () -> channel.basicPublish(name, "key", null, bytes("lost")));

        assertRefused(404, "NOT_FOUND - no exchange '" + name + "' in vhost '/'", refusal);
        assertTrue(connection.isOpen());
    }

    @Test
    void aMessageOfAnotherUserIsRefused() throws Throwable {
        BasicProperties other = new BasicProperties.Builder().userId("other").build();
        queue();

        Refusal refusal = closeAfter(channel, () -> channel.basicPublish("", name, other, bytes("body")));

        assertEquals(406, refusal.code());
    }

    @Test
    void furtherKeysReachFurtherQueues() throws Exception {
        String second = channel.queueDeclare().getQueue();
        String third = channel.queueDeclare().getQueue();
        BasicProperties properties =
                new BasicProperties.Builder().headers(Map.of("CC", List.of(second), "BCC", List.of(third))).build();

        channel.basicPublish("", queue(), properties, bytes("body"));

        for (String each : List.of(name, second, third)) {
            GetResponse message = channel.basicGet(each, true);
            assertEquals("body", text(message.getBody()));
            assertNull(message.getProps().getHeaders().get("BCC"));
        }
    }

    @Test
    void aMessageThatExpiresIsDropped() throws Exception {
        BasicProperties expiring = new BasicProperties.Builder().expiration("0").build();
        queue();

        channel.basicPublish("", name, expiring, bytes("late"));

        assertNull(channel.basicGet(name, true));
    }
}
