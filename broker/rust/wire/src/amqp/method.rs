//! The methods of AMQP 0-9-1 that RabbitMQ and LavinMQ serve, as one table: numbers, names and arguments in the order of the
//! wire. Reading and writing are made of it. It knows no meaning of a method, and nothing of sequences of them.

use super::argument::{Argument, FieldTable, Kind, LongText, Reader, Writer};
use super::frame::{FrameKind, put_frame};
use crate::{Name, WireError};

/// The two numbers of a method: of its class, and of itself in its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MethodId {
    pub class: u16,
    pub method: u16,
}

/// Why a payload is no method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    #[error("a method frame of {0} bytes is too short for a method's numbers")]
    Short(usize),
    #[error("unknown method {}, {} (class, method)", .0.class, .0.method)]
    Unknown(MethodId),
    #[error("{name}: {error}")]
    Arguments { id: MethodId, name: &'static str, error: WireError },
}

/// A row of the table: a method's numbers, its name as RabbitMQ writes it, and the types of its arguments, reserved ones
/// included.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub id: MethodId,
    pub name: &'static str,
    pub kinds: &'static [Kind],
}

/// Reserved arguments stand in parentheses before the others, or after them: they are read and forgotten, and written as zero
/// and empty.
macro_rules! methods {
    ($(
        $class:literal $method:literal $name:literal $variant:ident
        $(($($before:ty),*))? { $($field:ident: $kind:ty),* } $(($($after:ty),*))?
    )*) => {
        /// A method with its arguments, in place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Method<'a> {
            $($variant { $($field: $kind),* },)*
        }

        impl<'a> Method<'a> {
            /// All methods.
            pub const ALL: &'static [Row] = &[$(
                Row {
                    id: MethodId { class: $class, method: $method },
                    name: $name,
                    kinds: &[
                        $($(<$before as Argument<'a>>::KIND,)*)?
                        $(<$kind as Argument<'a>>::KIND,)*
                        $($(<$after as Argument<'a>>::KIND,)*)?
                    ],
                },
            )*];

            /// Nothing when no method has the numbers.
            #[inline]
            fn read_arguments(id: MethodId, mut reader: Reader<'a>) -> Result<Option<Method<'a>>, WireError> {
                let method = match (id.class, id.method) {
                    $(($class, $method) => {
                        $($(<$before>::read(&mut reader)?;)*)?
                        let method = Method::$variant { $($field: <$kind>::read(&mut reader)?),* };
                        $($(<$after>::read(&mut reader)?;)*)?
                        method
                    })*
                    _ => return Ok(None),
                };
                reader.finish()?;
                Ok(Some(method))
            }

            /// Return its numbers.
            #[inline]
            #[must_use]
            pub fn id(&self) -> MethodId {
                match self {
                    $(Method::$variant { .. } => MethodId { class: $class, method: $method },)*
                }
            }

            /// Return its name as RabbitMQ writes it: `queue.declare`.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Method::$variant { .. } => $name,)*
                }
            }

            fn write_arguments(&self, writer: &mut Writer<'_>) {
                match self {
                    $(Method::$variant { $($field),* } => {
                        $($(<$before>::default().write(writer);)*)?
                        $($field.write(writer);)*
                        $($(<$after>::default().write(writer);)*)?
                    })*
                }
            }
        }
    };
}

methods! {
    10 10 "connection.start" ConnectionStart {
        version_major: u8, version_minor: u8, server_properties: FieldTable<'a>, mechanisms: LongText<'a>,
        locales: LongText<'a>
    }
    10 11 "connection.start_ok" ConnectionStartOk {
        client_properties: FieldTable<'a>, mechanism: Name<'a>, response: LongText<'a>, locale: Name<'a>
    }
    10 20 "connection.secure" ConnectionSecure { challenge: LongText<'a> }
    10 21 "connection.secure_ok" ConnectionSecureOk { response: LongText<'a> }
    10 30 "connection.tune" ConnectionTune { channel_max: u16, frame_max: u32, heartbeat: u16 }
    10 31 "connection.tune_ok" ConnectionTuneOk { channel_max: u16, frame_max: u32, heartbeat: u16 }
    10 40 "connection.open" ConnectionOpen { virtual_host: Name<'a> } (Name<'a>, bool)
    10 41 "connection.open_ok" ConnectionOpenOk {} (Name<'a>)
    10 50 "connection.close" ConnectionClose { reply_code: u16, reply_text: Name<'a>, class: u16, method: u16 }
    10 51 "connection.close_ok" ConnectionCloseOk {}
    10 60 "connection.blocked" ConnectionBlocked { reason: Name<'a> }
    10 61 "connection.unblocked" ConnectionUnblocked {}
    10 70 "connection.update_secret" ConnectionUpdateSecret { new_secret: LongText<'a>, reason: Name<'a> }
    10 71 "connection.update_secret_ok" ConnectionUpdateSecretOk {}

    20 10 "channel.open" ChannelOpen {} (Name<'a>)
    20 11 "channel.open_ok" ChannelOpenOk {} (LongText<'a>)
    20 20 "channel.flow" ChannelFlow { active: bool }
    20 21 "channel.flow_ok" ChannelFlowOk { active: bool }
    20 40 "channel.close" ChannelClose { reply_code: u16, reply_text: Name<'a>, class: u16, method: u16 }
    20 41 "channel.close_ok" ChannelCloseOk {}

    40 10 "exchange.declare" ExchangeDeclare (u16) {
        exchange: Name<'a>, kind: Name<'a>, passive: bool, durable: bool, auto_delete: bool, internal: bool,
        nowait: bool, arguments: FieldTable<'a>
    }
    40 11 "exchange.declare_ok" ExchangeDeclareOk {}
    40 20 "exchange.delete" ExchangeDelete (u16) { exchange: Name<'a>, if_unused: bool, nowait: bool }
    40 21 "exchange.delete_ok" ExchangeDeleteOk {}
    40 30 "exchange.bind" ExchangeBind (u16) {
        destination: Name<'a>, source: Name<'a>, routing_key: Name<'a>, nowait: bool, arguments: FieldTable<'a>
    }
    40 31 "exchange.bind_ok" ExchangeBindOk {}
    40 40 "exchange.unbind" ExchangeUnbind (u16) {
        destination: Name<'a>, source: Name<'a>, routing_key: Name<'a>, nowait: bool, arguments: FieldTable<'a>
    }
    40 51 "exchange.unbind_ok" ExchangeUnbindOk {}

    50 10 "queue.declare" QueueDeclare (u16) {
        queue: Name<'a>, passive: bool, durable: bool, exclusive: bool, auto_delete: bool, nowait: bool,
        arguments: FieldTable<'a>
    }
    50 11 "queue.declare_ok" QueueDeclareOk { queue: Name<'a>, message_count: u32, consumer_count: u32 }
    50 20 "queue.bind" QueueBind (u16) {
        queue: Name<'a>, exchange: Name<'a>, routing_key: Name<'a>, nowait: bool, arguments: FieldTable<'a>
    }
    50 21 "queue.bind_ok" QueueBindOk {}
    50 30 "queue.purge" QueuePurge (u16) { queue: Name<'a>, nowait: bool }
    50 31 "queue.purge_ok" QueuePurgeOk { message_count: u32 }
    50 40 "queue.delete" QueueDelete (u16) { queue: Name<'a>, if_unused: bool, if_empty: bool, nowait: bool }
    50 41 "queue.delete_ok" QueueDeleteOk { message_count: u32 }
    50 50 "queue.unbind" QueueUnbind (u16) {
        queue: Name<'a>, exchange: Name<'a>, routing_key: Name<'a>, arguments: FieldTable<'a>
    }
    50 51 "queue.unbind_ok" QueueUnbindOk {}

    60 10 "basic.qos" BasicQos { prefetch_size: u32, prefetch_count: u16, global: bool }
    60 11 "basic.qos_ok" BasicQosOk {}
    60 20 "basic.consume" BasicConsume (u16) {
        queue: Name<'a>, consumer_tag: Name<'a>, no_local: bool, no_ack: bool, exclusive: bool, nowait: bool,
        arguments: FieldTable<'a>
    }
    60 21 "basic.consume_ok" BasicConsumeOk { consumer_tag: Name<'a> }
    60 30 "basic.cancel" BasicCancel { consumer_tag: Name<'a>, nowait: bool }
    60 31 "basic.cancel_ok" BasicCancelOk { consumer_tag: Name<'a> }
    60 40 "basic.publish" BasicPublish (u16) {
        exchange: Name<'a>, routing_key: Name<'a>, mandatory: bool, immediate: bool
    }
    60 50 "basic.return" BasicReturn {
        reply_code: u16, reply_text: Name<'a>, exchange: Name<'a>, routing_key: Name<'a>
    }
    60 60 "basic.deliver" BasicDeliver {
        consumer_tag: Name<'a>, delivery_tag: u64, redelivered: bool, exchange: Name<'a>, routing_key: Name<'a>
    }
    60 70 "basic.get" BasicGet (u16) { queue: Name<'a>, no_ack: bool }
    60 71 "basic.get_ok" BasicGetOk {
        delivery_tag: u64, redelivered: bool, exchange: Name<'a>, routing_key: Name<'a>, message_count: u32
    }
    60 72 "basic.get_empty" BasicGetEmpty {} (Name<'a>)
    60 80 "basic.ack" BasicAck { delivery_tag: u64, multiple: bool }
    60 90 "basic.reject" BasicReject { delivery_tag: u64, requeue: bool }
    60 100 "basic.recover_async" BasicRecoverAsync { requeue: bool }
    60 110 "basic.recover" BasicRecover { requeue: bool }
    60 111 "basic.recover_ok" BasicRecoverOk {}
    60 120 "basic.nack" BasicNack { delivery_tag: u64, multiple: bool, requeue: bool }

    85 10 "confirm.select" ConfirmSelect { nowait: bool }
    85 11 "confirm.select_ok" ConfirmSelectOk {}

    90 10 "tx.select" TxSelect {}
    90 11 "tx.select_ok" TxSelectOk {}
    90 20 "tx.commit" TxCommit {}
    90 21 "tx.commit_ok" TxCommitOk {}
    90 30 "tx.rollback" TxRollback {}
    90 31 "tx.rollback_ok" TxRollbackOk {}
}

impl<'a> Method<'a> {
    /// Reads the payload of a method frame.
    ///
    /// # Errors
    /// When it is no method of the table, or breaks a rule of its arguments.
    #[inline]
    pub fn read(payload: &'a [u8]) -> Result<Method<'a>, MethodError> {
        let Some((&[c1, c2, m1, m2], arguments)) = payload.split_first_chunk::<4>() else {
            return Err(MethodError::Short(payload.len()));
        };
        let id = MethodId { class: u16::from_be_bytes([c1, c2]), method: u16::from_be_bytes([m1, m2]) };
        match Method::read_arguments(id, Reader::new(arguments)) {
            Ok(method) => method.ok_or(MethodError::Unknown(id)),
            Err(error) => Err(refused(id, error)),
        }
    }

    /// Appends the method as a frame.
    #[inline]
    pub fn put(&self, channel: u16, out: &mut Vec<u8>) {
        put_frame(out, FrameKind::Method, channel, |out| {
            let MethodId { class, method } = self.id();
            let [c1, c2] = class.to_be_bytes();
            let [m1, m2] = method.to_be_bytes();
            out.extend_from_slice(&[c1, c2, m1, m2]);
            self.write_arguments(&mut Writer::new(out));
        });
    }

    /// Return whether a content follows it.
    #[inline]
    #[must_use]
    pub fn has_content(&self) -> bool {
        use Method::{BasicDeliver, BasicGetOk, BasicPublish, BasicReturn};
        matches!(self, BasicPublish { .. } | BasicReturn { .. } | BasicDeliver { .. } | BasicGetOk { .. })
    }
}

#[cold]
fn refused(id: MethodId, error: WireError) -> MethodError {
    let name = Method::ALL.iter().find(|row| row.id == id).map_or("a method", |row| row.name);
    MethodError::Arguments { id, name, error }
}
