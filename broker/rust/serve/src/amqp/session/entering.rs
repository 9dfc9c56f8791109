//! Greeting a client, its log-in, and its way into a virtual host.

use penstock_wire::Name;
use penstock_wire::amqp::connection::{Event, Limits};
use penstock_wire::amqp::method::MethodId;
use penstock_wire::amqp::reply::{Exception, ReplyCode};
use penstock_wire::amqp::sasl;
use penstock_wire::amqp::table_writer::TableWriter;

use super::Session;
use crate::amqp::errors::exception_of;
use crate::host::calls::{Call, CallRequest};
use crate::host::refusal::Kind;
use crate::host::rights::Question;

/// The limits that the broker offers in `connection.tune`, the same as RabbitMQ's.
pub(super) const OFFERED: Limits = Limits { channels_max: 2047, frame_bytes_max: 131_072, heartbeat_seconds: 60 };
pub(super) const MECHANISMS: &str = "PLAIN AMQPLAIN";

/// Capabilities that the broker has. Clients rely on each of them.
const CAPABILITIES: &[&str] = &[
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "authentication_failure_close",
    "per_consumer_qos",
];

impl Session {
    pub(super) async fn log_in(&mut self, mechanism: Name<'_>, response: &[u8]) -> Event<'static> {
        let is_plain = mechanism == Name::cut("PLAIN");
        let credentials = if is_plain { sasl::plain(response) } else { sasl::amqplain(response) };
        let Some(credentials) = credentials else {
            let text = format!("the response of mechanism {} cannot be read", mechanism.to_text());
            return Event::Failed(Exception::of_no_method(ReplyCode::SyntaxError, text));
        };
        self.peer.asks();
        self.caller = self.peer.caller(&format!("{}\0{}", credentials.user, credentials.password));
        match self.broker.log_in(&self.caller).await {
            Ok(_) => Event::LoggedIn,
            Err(refused) => {
                let mut exception = exception_of(&refused, MethodId { class: 10, method: 11 });
                if refused.kind == Kind::Unauthenticated {
                    exception.text = format!(
                        "Login was refused using authentication mechanism {}. For details see the broker logfile.",
                        mechanism.to_text()
                    );
                }
                Event::Failed(exception)
            }
        }
    }

    pub(super) async fn enter(&mut self, virtual_host: Name<'_>) -> Event<'static> {
        let call = Call::new(CallRequest::OpenPublish { vhost: virtual_host.to_text() }, &self.caller);
        let question = Question::of(&self.broker.calls, &call);
        match self.broker.calls.admit(call).await {
            Ok(admitted) => {
                self.rights = Some(question.watch(&admitted.user, &admitted.vhost, || ()));
                self.vhost = admitted.vhost;
                Event::Entered
            }
            Err(refused) => {
                let method = MethodId { class: 10, method: 40 };
                Event::Failed(Exception::new(ReplyCode::NotAllowed, refused.text, method))
            }
        }
    }
}

pub(super) fn server_properties() -> Vec<u8> {
    TableWriter::entries(|table| {
        table.table("capabilities", |inner| CAPABILITIES.iter().for_each(|name| inner.bool(name, true)));
        table.text("product", "Penstock");
        table.text("version", env!("CARGO_PKG_VERSION"));
        table.text("platform", "Rust");
    })
}
