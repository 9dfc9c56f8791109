package cases;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.rabbitmq.client.GetResponse;
import org.junit.jupiter.api.Test;

/** Transactions of a channel. */
class TransactionCases extends WithChannel {
    @Test
    void messagesComeAtTheCommit() throws Exception {
        queue();
        channel.txSelect();
        channel.basicPublish("", name, null, bytes("body"));
        assertNull(channel.basicGet(name, true));

        channel.txCommit();

        assertEquals("body", text(channel.basicGet(name, true).getBody()));
    }

    @Test
    void aRollbackForgetsMessagesAndAcks() throws Exception {
        fill(queue(), "stays");
        channel.txSelect();
        GetResponse message = channel.basicGet(name, false);
        channel.basicPublish("", name, null, bytes("forgotten"));
        channel.basicAck(message.getEnvelope().getDeliveryTag(), false);

        channel.txRollback();
        channel.basicRecover(true);

        GetResponse again = channel.basicGet(name, true);
        assertEquals("stays", text(again.getBody()));
        assertEquals(0, again.getMessageCount());
    }

    @Test
    void aChannelHasConfirmsOrTransactions() throws Exception {
        channel.txSelect();

        assertRefused(
                406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode", refusalOf(channel::confirmSelect));
    }
}
