package cases;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcClientParams;
import com.rabbitmq.client.RpcServer;
import java.io.InputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.Test;

/** Log-ins, TLS, the broker's properties, many channels, and requests with replies. */
class ConnectionCases extends WithChannel {
    @Test
    void aWrongPasswordIsRefused() throws Exception {
        ConnectionFactory factory = factory();
        factory.setPassword("wrong");

        AuthenticationFailureException refused =
                assertThrows(AuthenticationFailureException.class, factory::newConnection);

        assertTrue(refused.getMessage().startsWith("ACCESS_REFUSED - Login was refused using authentication mechanism"));
    }

    @Test
    void aVirtualHostThatDoesNotExistIsRefused() throws Exception {
        ConnectionFactory factory = factory();
        factory.setVirtualHost(name);

        IOException refused = assertThrows(IOException.class, factory::newConnection);

        assertTrue(refused.getCause().getMessage().contains("NOT_ALLOWED - vhost " + name + " not found"));
    }

    @Test
    void theBrokerSaysWhatItCan() {
        Map<?, ?> capabilities = (Map<?, ?>) connection.getServerProperties().get("capabilities");

        for (String each : List.of("publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked")) {
            assertEquals(true, capabilities.get(each), each);
        }
    }

    @Test
    void channelsFramesAndHeartbeatsAreNegotiated() throws Exception {
        ConnectionFactory factory = factory();
        factory.setRequestedChannelMax(5);
        factory.setRequestedFrameMax(8192);
        factory.setRequestedHeartbeat(7);

        try (Connection negotiated = factory.newConnection()) {
            assertEquals(5, negotiated.getChannelMax());
            assertEquals(8192, negotiated.getFrameMax());
            assertEquals(7, negotiated.getHeartbeat());
            for (int number = 0; number < 5; number++) {
                assertTrue(negotiated.openChannel().isPresent());
            }
            assertTrue(negotiated.openChannel().isEmpty());
        }
    }

    @Test
    void manyChannelsWorkSideBySide() throws Exception {
        queue();
        List<Channel> channels = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            Channel each = connection.createChannel();
            each.confirmSelect();
            each.basicPublish("", name, null, bytes("one"));
            channels.add(each);
        }

        for (Channel each : channels) {
            each.waitForConfirmsOrDie();
        }

        assertEquals(100, channel.messageCount(name));
    }

    @Test
    void aConnectionOverTlsTrustsTheAuthority() throws Exception {
        ConnectionFactory factory = tlsFactory("AUTHORITY");

        try (Connection secure = factory.newConnection(); Channel over = secure.createChannel()) {
            String queue = over.queueDeclare().getQueue();
            over.basicPublish("", queue, null, bytes("secret"));
            assertEquals("secret", text(over.basicGet(queue, true).getBody()));
        }
    }

    @Test
    void aConnectionOverTlsRefusesACertificateOfAnotherAuthority() throws Exception {
        assertThrows(SSLHandshakeException.class, tlsFactory("FOREIGN")::newConnection);
    }

    @Test
    void aRequestGetsADirectReply() throws Exception {
        Channel serving = connection.createChannel();
        RpcServer server = new RpcServer(serving, queue()) {
            @Override
            public byte[] handleCall(Delivery request, BasicProperties reply) {
                return bytes("re: " + text(request.getBody()));
            }
        };
        Thread thread = new Thread(() -> serve(server));
        thread.start();

        RpcClient client = new RpcClient(new RpcClientParams()
                .channel(channel).exchange("").routingKey(name).replyTo("amq.rabbitmq.reply-to").timeout(30_000));

        assertEquals("re: hello", client.stringCall("hello"));
        assertEquals("re: again", client.stringCall("again"));
        client.close();
        serving.close();
        thread.join();
    }

    private static void serve(RpcServer server) {
        try {
            server.mainloop();
        } catch (IOException failed) {
            throw new IllegalStateException(failed);
        }
    }

    /** Return a factory that trusts the certificate in the file that a variable names. */
    private static ConnectionFactory tlsFactory(String variable) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream file = Files.newInputStream(Path.of(System.getenv(variable)))) {
            Certificate certificate = CertificateFactory.getInstance("X.509").generateCertificate(file);
            trusted.setCertificateEntry("authority", certificate);
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQPS_URL"));
        factory.useSslProtocol(context);
        factory.enableHostnameVerification();
        return factory;
    }
}
