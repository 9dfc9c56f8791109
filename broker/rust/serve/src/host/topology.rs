//! Changes of exchanges, queues and bindings that clients ask for by methods of their protocol.
//!
//! Names are the client's, and were checked for their form only. Arguments are field tables as AMQP 0-9-1 has them, without their
//! length, checked for their form, too: Python reads them.

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyRequest {
    DeclareExchange {
        name: String,
        kind: String,
        passive: bool,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Vec<u8>,
    },
    DeleteExchange {
        name: String,
        if_unused: bool,
    },
    DeclareQueue {
        name: String,
        passive: bool,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Vec<u8>,
    },
    DeleteQueue {
        name: String,
        if_unused: bool,
        if_empty: bool,
    },
    PurgeQueue {
        name: String,
    },
    ChangeBinding(BindingChange),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingChange {
    pub source: String,
    pub destination: String,
    /// Whether the destination is an exchange, not a queue.
    pub to_exchange: bool,
    pub routing_key: String,
    pub arguments: Vec<u8>,
    pub unbind: bool,
}

/// What a client hears of a change: the name of a queue, which the broker may have made, and numbers of messages and consumers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub name: String,
    pub message_count: u64,
    pub consumer_count: u64,
}
