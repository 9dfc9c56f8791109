package cases;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.function.Executable;

/** A connection with a channel for each case, and a name that no other case has. */
abstract class WithChannel {
    Connection connection;
    Channel channel;
    final String name = "java-" + UUID.randomUUID();

    /** The code and the text with which the broker closed a channel. */
    record Refusal(int code, String text) {}

    @BeforeEach
    void open() throws Exception {
        connection = factory().newConnection("case " + name);
        channel = connection.createChannel();
    }

    @AfterEach
    void close() {
        connection.abort();
    }

    static ConnectionFactory factory() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        return factory;
    }

    /** Declare the queue of the case, which ends with its connection. */
    String queue(Map<String, Object> arguments) throws IOException {
        return channel.queueDeclare(name, false, true, false, arguments).getQueue();
    }

    String queue() throws IOException {
        return queue(Map.of());
    }

    /** Publish messages with these bodies to a queue, and wait until they are stored. */
    void fill(String queue, String... bodies) throws Exception {
        try (Channel publishing = connection.createChannel()) {
            publishing.confirmSelect();
            for (String body : bodies) {
                publishing.basicPublish("", queue, null, bytes(body));
            }
            publishing.waitForConfirmsOrDie();
        }
    }

    /** Consume messages until there are so many; they stay unacked. */
    static List<Delivery> take(Channel channel, String queue, int count) throws Exception {
        BlockingQueue<Delivery> arrived = new LinkedBlockingQueue<>();
        String tag = channel.basicConsume(queue, false, (consumer, delivery) -> arrived.add(delivery), consumer -> {});
        List<Delivery> taken = new ArrayList<>();
        while (taken.size() < count) {
            taken.add(arrived.take());
        }
        channel.basicCancel(tag);
        return taken;
    }

    /** Return a message of a queue to which messages come at some time, as dead letters do. */
    static GetResponse await(Channel channel, String queue) throws Exception {
        while (true) {
            GetResponse message = channel.basicGet(queue, true);
            if (message != null) {
                return message;
            }
            Thread.sleep(10);
        }
    }

    /** Return how the broker refuses a call, which closes its channel. */
    static Refusal refusalOf(Executable call) {
        IOException failed = assertThrows(IOException.class, call);
        return closeOf(assertInstanceOf(ShutdownSignalException.class, failed.getCause()));
    }

    /** Return how the broker closes a channel after a method that has no answer. */
    static Refusal closeAfter(Channel channel, Executable call) throws Throwable {
        BlockingQueue<ShutdownSignalException> closed = new LinkedBlockingQueue<>();
        channel.addShutdownListener(closed::add);
        call.execute();
        return closeOf(closed.take());
    }

    private static Refusal closeOf(ShutdownSignalException closed) {
        AMQP.Channel.Close reason = assertInstanceOf(AMQP.Channel.Close.class, closed.getReason());
        return new Refusal(reason.getReplyCode(), reason.getReplyText());
    }

    static void assertRefused(int code, String text, Refusal refusal) {
        assertEquals(new Refusal(code, text), refusal);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] body) {
        return new String(body, StandardCharsets.UTF_8);
    }

    static List<String> texts(List<Delivery> deliveries) {
        return deliveries.stream().map(delivery -> text(delivery.getBody())).toList();
    }
}
