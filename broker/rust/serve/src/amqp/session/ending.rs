//! The end of a connection: what its channels have is stored or given back, and its exclusive queues go before the client hears
//! that it is closed.

use std::time::Duration;

use penstock_wire::amqp::connection::{Effect, Event, Phase};
use penstock_wire::amqp::reply::{Exception, ReplyCode};
use tokio::time::timeout;

use super::Session;
use crate::amqp::errors::led_elsewhere;
use crate::host::calls::{Call, CallRequest};

/// The close of a connection waits so long for the disk to take the deletion of its exclusive queues.
const DELETING: Duration = Duration::from_secs(2);

impl Session {
    /// Ends the connection because of something that happened to it.
    pub async fn fail(&mut self, exception: Exception) {
        let effect = self.connection.step(Event::Failed(exception), &mut self.out);
        self.end(effect).await;
    }

    /// Ends the channels, or the connection.
    pub(super) async fn end(&mut self, effect: Option<Effect<'_>>) {
        if effect.is_none() {
            return;
        }
        if effect == Some(Effect::EndChannels) {
            for number in std::mem::take(&mut self.unstored) {
                // Whatever is refused now, the client does not wait for it.
                let _ = self.store(number).await;
            }
            let numbers: Vec<u16> = self.channels.keys().copied().collect();
            for number in numbers {
                self.consumers.end_channel(number).await;
            }
            self.channels.clear();
            (self.wanted, self.returns_wait, self.commit_waits) = (None, false, None);
            self.waiting.clear();
            self.crowded.clear();
            self.held_bytes = 0;
            if self.phase() != Phase::Ending {
                return;
            }
            self.delete_exclusive_queues().await;
            self.connection.step(Event::ChannelsEnded, &mut self.out);
        }
        self.is_over = true;
    }

    /// Ends the connection, because messages that were published will never be confirmed: the disk has failed, or another broker leads.
    pub async fn fail_for_disk(&mut self) {
        let is_deposed = self.channels.values().any(|open| open.publisher.is_deposed());
        self.channels.values_mut().for_each(|open| open.publisher.forget_waiting());
        self.waiting.clear();
        self.crowded.clear();
        if is_deposed {
            return self.fail(led_elsewhere(&self.vhost)).await;
        }
        let text = "messages that were published cannot be confirmed: the disk has failed";
        self.fail(Exception::of_no_method(ReplyCode::InternalError, text)).await;
    }

    /// Deletes the exclusive queues of a client that closes its connection. As with RabbitMQ, others may declare them once the
    /// close is confirmed.
    async fn delete_exclusive_queues(&mut self) {
        if std::mem::take(&mut self.may_have_exclusive_queues) {
            let call = Call::new(CallRequest::EndQueues, &self.caller);
            // When this fails or takes longer, they go after the connection.
            let _ = timeout(DELETING, self.broker.calls.admit(call)).await;
        }
    }
}
