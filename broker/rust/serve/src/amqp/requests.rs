//! From methods about exchanges, queues and bindings to changes that Python decides, and from their outcomes to answers.

use penstock_wire::Name;
use penstock_wire::amqp::method::Method;

use crate::host::topology::{BindingChange, Outcome, TopologyRequest};

/// The change that a method asks for, and whether its client wants no answer; nothing for any other method. `last` is the queue
/// that the channel declared last, which an empty name stands for.
pub(super) fn change_of(method: &Method<'_>, last: &str) -> Option<(TopologyRequest, bool)> {
    let queue_or_last = |name: Name<'_>| if name.is_empty() { last.to_owned() } else { name.to_text() };
    Some(match *method {
        Method::ExchangeDeclare { exchange, kind, passive, durable, auto_delete, internal, nowait, arguments } => {
            let (name, kind, arguments) = (exchange.to_text(), kind.to_text(), arguments.as_bytes().to_vec());
            let wanted =
                TopologyRequest::DeclareExchange { name, kind, passive, durable, auto_delete, internal, arguments };
            (wanted, nowait)
        }
        Method::ExchangeDelete { exchange, if_unused, nowait } => {
            (TopologyRequest::DeleteExchange { name: exchange.to_text(), if_unused }, nowait)
        }
        Method::ExchangeBind { destination, source, routing_key, nowait, arguments } => {
            let ends = (source.to_text(), destination.to_text(), true);
            (binding(ends, routing_key.to_text(), arguments.as_bytes(), false), nowait)
        }
        Method::ExchangeUnbind { destination, source, routing_key, nowait, arguments } => {
            let ends = (source.to_text(), destination.to_text(), true);
            (binding(ends, routing_key.to_text(), arguments.as_bytes(), true), nowait)
        }
        Method::QueueDeclare { queue, passive, durable, exclusive, auto_delete, nowait, arguments } => {
            // An empty name makes a new queue, unless the queue has to be there.
            let name = if passive { queue_or_last(queue) } else { queue.to_text() };
            let arguments = arguments.as_bytes().to_vec();
            (TopologyRequest::DeclareQueue { name, passive, durable, exclusive, auto_delete, arguments }, nowait)
        }
        Method::QueueBind { queue, exchange, routing_key, nowait, arguments } => {
            let key = if queue.is_empty() && routing_key.is_empty() { last.to_owned() } else { routing_key.to_text() };
            let ends = (exchange.to_text(), queue_or_last(queue), false);
            (binding(ends, key, arguments.as_bytes(), false), nowait)
        }
        Method::QueueUnbind { queue, exchange, routing_key, arguments } => {
            let key = if queue.is_empty() && routing_key.is_empty() { last.to_owned() } else { routing_key.to_text() };
            let ends = (exchange.to_text(), queue_or_last(queue), false);
            (binding(ends, key, arguments.as_bytes(), true), false)
        }
        Method::QueuePurge { queue, nowait } => (TopologyRequest::PurgeQueue { name: queue_or_last(queue) }, nowait),
        Method::QueueDelete { queue, if_unused, if_empty, nowait } => {
            (TopologyRequest::DeleteQueue { name: queue_or_last(queue), if_unused, if_empty }, nowait)
        }
        _ => return None,
    })
}

fn binding(
    (source, destination, to_exchange): (String, String, bool),
    routing_key: String,
    arguments: &[u8],
    unbind: bool,
) -> TopologyRequest {
    let arguments = arguments.to_vec();
    TopologyRequest::ChangeBinding(BindingChange { source, destination, to_exchange, routing_key, arguments, unbind })
}

/// Appends the answer to a method whose change is done.
pub(super) fn put_answer(method: &Method<'_>, outcome: &Outcome, channel: u16, out: &mut Vec<u8>) {
    let message_count = u32::try_from(outcome.message_count).unwrap_or(u32::MAX);
    let consumer_count = u32::try_from(outcome.consumer_count).unwrap_or(u32::MAX);
    let answer = match method {
        Method::ExchangeDeclare { .. } => Method::ExchangeDeclareOk {},
        Method::ExchangeDelete { .. } => Method::ExchangeDeleteOk {},
        Method::ExchangeBind { .. } => Method::ExchangeBindOk {},
        Method::ExchangeUnbind { .. } => Method::ExchangeUnbindOk {},
        Method::QueueDeclare { .. } => {
            Method::QueueDeclareOk { queue: Name::cut(&outcome.name), message_count, consumer_count }
        }
        Method::QueueBind { .. } => Method::QueueBindOk {},
        Method::QueueUnbind { .. } => Method::QueueUnbindOk {},
        Method::QueuePurge { .. } => Method::QueuePurgeOk { message_count },
        Method::QueueDelete { .. } => Method::QueueDeleteOk { message_count },
        _ => return,
    };
    answer.put(channel, out);
}
