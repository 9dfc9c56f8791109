package cases;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.impl.recovery.AutorecoveringConnection;
import java.io.IOException;
import java.net.Socket;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Connections that are lost, or closed by the broker, and recover with their topology and their consumers. */
class RecoveryCases extends WithChannel {
    private final AtomicReference<Socket> socket = new AtomicReference<>();
    private final BlockingQueue<Boolean> recovered = new LinkedBlockingQueue<>();
    private Connection recovering;
    private Channel over;

    @BeforeEach
    void openRecovering() throws Exception {
        ConnectionFactory factory = factory();
        factory.setNetworkRecoveryInterval(10);
        factory.setSocketConfigurator(factory.getSocketConfigurator().andThen(socket::set));
        recovering = factory.newConnection();
        ((Recoverable) recovering).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable connection) {
                recovered.add(true);
            }

            @Override
            public void handleRecoveryStarted(Recoverable connection) {}
        });
        over = recovering.createChannel();
    }

    @AfterEach
    void closeRecovering() {
        recovering.abort();
    }

    @Test
    void aLostConnectionIsOpenedAgain() throws Exception {
        loseConnection();

        over.queueDeclare(name, false, true, false, null);
        assertTrue(recovering.isOpen());
    }

    @Test
    void aConnectionThatTheBrokerClosedIsOpenedAgain() throws Exception {
        Channel wrong = recovering.createChannel();
        wrong.basicPublish("", name, false, true, null, bytes("immediate messages are not implemented"));
        recovered.take();

        over.queueDeclare(name, false, true, false, null);
        assertTrue(recovering.isOpen());
    }

    @Test
    void theTopologyIsDeclaredAgain() throws Exception {
        over.exchangeDeclare(name, "topic", false, true, null);
        over.exchangeDeclare(name + "-from", "fanout", false, true, null);
        over.queueDeclare(name, false, true, true, null);
        over.queueBind(name, name, "a.*");
        over.exchangeBind(name, name + "-from", "");

        loseConnection();
        over.basicPublish(name + "-from", "a.b", null, bytes("body"));

        assertEquals("body", text(over.basicGet(name, true).getBody()));
    }

    @Test
    void aConsumerGoesOnAndGetsItsUnackedMessagesAgain() throws Exception {
        over.queueDeclare(name, false, false, false, Map.of("x-expires", 600_000));
        fill(name, "unacked");
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        over.basicQos(5);
        over.basicConsume(name, false, (tag, delivery) -> {
            boolean again = delivery.getEnvelope().isRedeliver();
            seen.add(text(delivery.getBody()) + (again ? " again" : ""));
            if (again || text(delivery.getBody()).equals("new")) {
                over.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            }
        }, tag -> {});
        assertEquals("unacked", seen.take());

        loseConnection();

        assertEquals("unacked again", seen.take());
        fill(name, "new");
        assertEquals("new", seen.take());
        over.queueDelete(name);
    }

    @Test
    void aQueueThatTheBrokerNamedGetsANewNameAndKeepsItsBinding() throws Exception {
        String first = over.queueDeclare().getQueue();
        over.exchangeDeclare(name, "fanout", false, true, null);
        over.queueBind(first, name, "");
        BlockingQueue<String> names = new LinkedBlockingQueue<>();
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        over.basicConsume(first, true, (tag, delivery) -> seen.add(text(delivery.getBody())), tag -> {});
        ((AutorecoveringConnection) recovering).addQueueRecoveryListener((before, after) -> names.add(after));

        loseConnection();
        over.basicPublish(name, "", null, bytes("body"));

        assertNotEquals(first, names.take());
        assertEquals("body", seen.take());
    }

    @Test
    void aChannelConfirmsOnAndKeepsItsPrefetch() throws Exception {
        over.queueDeclare(name, false, true, false, null);
        over.confirmSelect();
        over.basicQos(1);

        loseConnection();
        for (String body : List.of("0", "1")) {
            over.basicPublish("", name, null, bytes(body));
        }
        assertTrue(over.waitForConfirms());
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        over.basicConsume(name, false, (tag, delivery) -> seen.add(text(delivery.getBody())), tag -> {});

        assertEquals("0", seen.take());
        assertEquals(1, over.messageCount(name));
    }

    @Test
    void aConnectionThatItsClientClosedStaysClosed() throws IOException {
        recovering.close();

        assertFalse(recovering.isOpen());
        assertTrue(recovered.isEmpty());
    }

    private void loseConnection() throws Exception {
        socket.get().close();
        recovered.take();
    }
}
