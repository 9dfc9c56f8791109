package example;

import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DeliverCallback;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Publish orders with confirms, and consume them with acks and a prefetch. Those that are rejected become dead letters. */
public final class Orders {
    private static final String EXCHANGE = "java-shop";
    private static final String ORDERS = "java-orders";
    private static final String REFUSED = "java-orders-refused";
    private static final int COUNT = 1000;

    private Orders() {}

    public static void main(String[] arguments) throws Exception {
        String url = System.getenv().getOrDefault("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F");
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(url);
        try (Connection connection = factory.newConnection("orders")) {
            declare(connection);
            publish(connection);
            consume(connection);
            showRefused(connection);
        }
    }

    private static void declare(Connection connection) throws Exception {
        try (Channel channel = connection.createChannel()) {
            channel.exchangeDeclare(EXCHANGE, "topic", true);
            channel.queueDeclare(REFUSED, true, false, false, null);
            Map<String, Object> deadLetters = Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", REFUSED);
            channel.queueDeclare(ORDERS, true, false, false, deadLetters);
            channel.queueBind(ORDERS, EXCHANGE, "order.#");
        }
    }

    /** Send all orders before waiting for their confirms, so that the broker can store many at once. */
    private static void publish(Connection connection) throws Exception {
        try (Channel channel = connection.createChannel()) {
            channel.confirmSelect();
            for (int number = 1; number <= COUNT; number++) {
                int amount = number == 7 ? 0 : 10 * number;
                BasicProperties properties =
                        new BasicProperties.Builder().deliveryMode(2).messageId(String.valueOf(number)).build();
                byte[] body = String.valueOf(amount).getBytes(StandardCharsets.UTF_8);
                channel.basicPublish(EXCHANGE, "order.new", true, properties, body);
            }
            channel.waitForConfirmsOrDie(60_000);
            System.out.println("confirmed " + COUNT);
        }
    }

    private static void consume(Connection connection) throws Exception {
        AtomicInteger acked = new AtomicInteger();
        AtomicInteger rejected = new AtomicInteger();
        CountDownLatch left = new CountDownLatch(COUNT);
        try (Channel channel = connection.createChannel()) {
            channel.basicQos(100);
            channel.basicConsume(ORDERS, false, (tag, delivery) -> {
                long deliveryTag = delivery.getEnvelope().getDeliveryTag();
                if (Integer.parseInt(new String(delivery.getBody(), StandardCharsets.UTF_8)) > 0) {
                    channel.basicAck(deliveryTag, false);
                    acked.incrementAndGet();
                } else {
                    channel.basicReject(deliveryTag, false);
                    rejected.incrementAndGet();
                }
                left.countDown();
            }, tag -> System.err.println("the broker ended the consumer"));
            if (!left.await(1, TimeUnit.MINUTES)) {
                throw new IllegalStateException(left.getCount() + " orders did not come");
            }
        }
        System.out.println("acked " + acked + ", rejected " + rejected);
    }

    /** Wait for the dead letter, which arrives a moment after its message was rejected. */
    private static void showRefused(Connection connection) throws Exception {
        try (Channel channel = connection.createChannel()) {
            CompletableFuture<BasicProperties> arrived = new CompletableFuture<>();
            DeliverCallback take = (tag, letter) -> arrived.complete(letter.getProperties());
            channel.basicConsume(REFUSED, true, take, tag -> {});
            BasicProperties properties = arrived.get(10, TimeUnit.SECONDS);
            Object reason = properties.getHeaders().get("x-first-death-reason");
            System.out.println("refused: order " + properties.getMessageId() + ", " + reason);
        }
    }
}
