//! What a client takes of queues: consumers, single messages, and how much it may hold.

use penstock_wire::Name;
use penstock_wire::amqp::method::{Method, MethodId};
use penstock_wire::amqp::replies::{REPLY_TO, is_reply};
use penstock_wire::amqp::reply::{Exception, ReplyCode};

use super::{Session, Wanted};
use crate::amqp::consume_arguments::ConsumeArguments;
use crate::amqp::errors::of_queue;
use crate::amqp::outgoing::{Outgoing, Place};
use crate::host::consuming::{ConsumeOptions, PREFETCH_MAX};
use crate::host::getting::Got;

impl Session {
    pub(super) fn set_prefetch(&mut self, number: u16, count: u16, global: bool) {
        let Some(open) = self.channels.get_mut(&number) else { return };
        match (global, count) {
            (false, count) => open.prefetch = count,
            (true, 0) => open.credit.set_limit(u32::MAX),
            (true, count) => open.credit.set_limit(u32::from(count)),
        }
    }

    pub(super) async fn consume(&mut self, number: u16, method: Method<'_>) -> Result<(), Exception> {
        let Method::BasicConsume { queue, consumer_tag, no_ack, exclusive, nowait, arguments, .. } = method else {
            return Ok(());
        };
        let arguments = ConsumeArguments::read(arguments)
            .map_err(|text| Exception::new(ReplyCode::PreconditionFailed, text, method.id()))?;
        let Some(open) = self.channels.get(&number) else { return Ok(()) };
        let named;
        let queue = if queue.is_empty() { Name::cut(&open.last_queue) } else { queue };
        let consumer_tag = if consumer_tag.is_empty() {
            named = format!("amq.ctag-{}-{}", self.caller.connection, self.consumers.next_number());
            Name::cut(&named)
        } else {
            consumer_tag
        };
        if self.consumers.has(number, consumer_tag.as_bytes()) {
            let text = format!("attempt to reuse consumer tag '{}'", consumer_tag.to_text());
            return Err(Exception::new(ReplyCode::NotAllowed, text, method.id()));
        }
        if queue.as_bytes() == REPLY_TO {
            self.consume_replies(number, consumer_tag, no_ack, method.id())?;
            if !nowait {
                Method::BasicConsumeOk { consumer_tag }.put(number, &mut self.out);
            }
            return Ok(());
        }
        let prefetch = if open.prefetch == 0 { PREFETCH_MAX } else { u32::from(open.prefetch) };
        let vhost = Name::cut(&self.vhost);
        let ConsumeArguments { priority, ack_timeout_ms, .. } = arguments;
        let auto_ack = no_ack;
        let wanted =
            ConsumeOptions { vhost, queue, consumer_tag, prefetch, auto_ack, exclusive, priority, ack_timeout_ms };
        let asker = (&self.broker, self.caller.clone());
        let (shares_credit, has_prefetch) = (open.credit.is_limited(), open.prefetch != 0);
        let place = Place { channel: number, credit: &open.credit, shares_credit, has_prefetch };
        let opened = self.consumers.open(asker, wanted, arguments, place).await;
        opened.map_err(|refused| of_queue(&refused, &queue.to_text(), &self.vhost, method.id()))?;
        if !nowait {
            Method::BasicConsumeOk { consumer_tag }.put(number, &mut self.out);
        }
        Ok(())
    }

    /// Opens a consumer of direct replies: messages of the channel that ask for one name it from now on.
    fn consume_replies(&mut self, number: u16, tag: Name<'_>, no_ack: bool, method: MethodId) -> Result<(), Exception> {
        let refused = |text: &str| Exception::new(ReplyCode::PreconditionFailed, text, method);
        if !no_ack {
            return Err(refused("reply consumer cannot acknowledge"));
        }
        let place = (&self.broker, self.vhost.as_str());
        let name = self.consumers.open_replies(place, (number, tag.as_bytes()), &self.peer.state.account);
        let name = name.ok_or_else(|| refused("reply consumer already set"))?;
        if let Some(open) = self.channels.get_mut(&number) {
            open.channel.assembly_mut().set_reply_name(name);
        }
        Ok(())
    }

    /// Ends a consumer as its client wishes.
    pub(super) async fn cancel(&mut self, number: u16, tag: &[u8]) {
        self.consumers.settle().await;
        if !self.consumers.cancel_replies(number, tag) {
            return self.consumers.cancel(number, tag).await;
        }
        if let Some(open) = self.channels.get_mut(&number) {
            open.channel.assembly_mut().set_reply_name(&[]);
        }
    }

    /// Answers a client that asks whether another one still waits for a direct reply; says whether it did ask that.
    pub(super) fn looks_for_replies(&mut self, number: u16, method: &Method<'_>) -> Result<bool, Exception> {
        let Method::QueueDeclare { queue, nowait, .. } = *method else { return Ok(false) };
        let is_asked = queue.as_bytes() == REPLY_TO || is_reply(b"", queue.as_bytes());
        if !is_asked {
            return Ok(false);
        }
        if queue.as_bytes() != REPLY_TO && !self.broker.replies.is_there(&self.vhost, queue.as_bytes()) {
            let text = format!("no queue '{}' in vhost '{}'", queue.to_text(), self.vhost);
            return Err(Exception::new(ReplyCode::NotFound, text, method.id()));
        }
        if !nowait {
            let (message_count, consumer_count) = (0, 1);
            Method::QueueDeclareOk { queue, message_count, consumer_count }.put(number, &mut self.out);
        }
        Ok(true)
    }

    /// Gets a message, now or when there is room for it.
    pub(super) async fn get(&mut self, wanted: Wanted) -> Result<(), Exception> {
        let Wanted { queue, no_ack, channel, method } = &wanted;
        let asker = (&self.broker, &self.caller, self.vhost.as_str());
        let frame_bytes_max = self.connection.limits().frame_bytes_max;
        let (out, space) = (&mut self.out, &mut self.space);
        let mut outgoing = Outgoing { out, bytes_max: usize::MAX, frame_bytes_max, space };
        let got = self.consumers.get(asker, (*channel, queue, *no_ack), &mut outgoing).await;
        match got.map_err(|refused| of_queue(&refused, queue, &self.vhost, *method))? {
            Got::Message => {}
            Got::Nothing => Method::BasicGetEmpty {}.put(*channel, &mut self.out),
            Got::NoRoom => self.wanted = Some(wanted),
        }
        Ok(())
    }

    /// Goes on with a get that waited for room.
    pub(super) async fn get_wanted(&mut self) {
        let Some(wanted) = self.wanted.take() else { return };
        let channel = wanted.channel;
        if let Err(exception) = self.get(wanted).await {
            self.fail_channel(channel, exception).await;
        }
    }
}
