//! A client's log-in, and its way into a virtual host.

use std::time::Duration;

use penstock_wire::Name;
use penstock_wire::amqp::connection::Event;
use penstock_wire::amqp::method::MethodId;
use penstock_wire::amqp::reply::{Exception, ReplyCode};
use penstock_wire::amqp::sasl::{self, Credentials};

use tokio::time::{Instant, timeout};

use super::Session;
use crate::amqp::errors::exception_of;
use crate::amqp::relay::{self, LogIn, Opened, Relayed};
use crate::host::calls::{Call, CallRequest};
use crate::host::refusal::Kind;
use crate::host::rights::{Question, until_refused};

const UPDATE_SECRET: MethodId = MethodId { class: 10, method: 70 };

/// A leader that cannot be reached is tried so often, and for so long: another one may lead soon.
const TRIES_MAX: usize = 6;
const TRIED: Duration = Duration::from_secs(5);
const SECRET_REFUSED: &str = "New secret was refused by one of the backends";

impl Session {
    pub(super) async fn log_in(&mut self, mechanism: Name<'_>, response: &[u8]) -> Event<'static> {
        let authorization = match mechanism.as_bytes() {
            // The certificate says who it is: a name and a password would have a zero between them.
            b"EXTERNAL" => Some(String::new()),
            b"PLAIN" => sasl::plain(response).map(authorization_of),
            _ => sasl::amqplain(response).map(authorization_of),
        };
        let Some(authorization) = authorization else {
            let text = format!("the response of mechanism {} cannot be read", mechanism.to_text());
            return Event::Failed(Exception::of_no_method(ReplyCode::SyntaxError, text));
        };
        self.peer.asks();
        self.caller = self.peer.caller(&authorization);
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

    /// Goes on with a newer password or token of the same user. What is open asks again whether it may be. An answer without a
    /// user says that the older credentials count on.
    pub(super) async fn update_secret(&mut self, secret: &[u8]) -> Event<'static> {
        let refused = || Event::Failed(Exception::new(ReplyCode::NotAllowed, SECRET_REFUSED, UPDATE_SECRET));
        let (user, _) = self.caller.authorization.split_once('\0').unwrap_or_default();
        let Ok(password) = std::str::from_utf8(secret) else { return refused() };
        let caller = self.peer.caller(&authorization_of(Credentials { user, password }));
        match self.broker.calls.admit(Call::new(CallRequest::Renew, &caller)).await {
            Ok(admitted) => {
                if !admitted.user.is_empty() {
                    self.caller = caller;
                }
                Event::SecretUpdated
            }
            Err(_) => refused(),
        }
    }

    /// Whether another broker may serve the client.
    pub(super) fn may_be_relayed(&self) -> bool {
        self.broker.relays().is_some() && !self.peer.is_relayed
    }

    /// Lets a client into a virtual host. When another broker leads that, the client goes on there instead.
    pub(super) async fn enter(&mut self, virtual_host: Name<'_>) -> Result<Event<'static>, Box<Relayed>> {
        let start_ok = self.start_ok.take();
        let call = Call::new(CallRequest::OpenPublish { vhost: virtual_host.to_text() }, &self.caller);
        let question = Question::of(&self.broker.calls, &call);
        let admitted = match self.broker.calls.admit(call).await {
            Ok(admitted) => admitted,
            Err(refused) => {
                let method = MethodId { class: 10, method: 40 };
                return Ok(Event::Failed(Exception::new(ReplyCode::NotAllowed, refused.text, method)));
            }
        };
        if let Some(start_ok) = start_ok
            && let Some(opened) = self.relay(&start_ok, virtual_host, (&admitted.user, &admitted.vhost)).await
        {
            return match opened {
                Opened::There(relayed) => Err(relayed),
                Opened::Refused(exception) => Ok(Event::Failed(exception)),
            };
        }
        self.rights = Some(question.watch(&admitted.user, &admitted.vhost, || ()));
        (self.vhost, self.user) = (admitted.vhost, admitted.user);
        Ok(Event::Entered)
    }

    /// Goes to the broker that leads the virtual host, when that is another one. Return nothing when the client is to be served here: no
    /// other one leads, or it cannot be reached.
    async fn relay(&self, start_ok: &[u8], virtual_host: Name<'_>, (user, vhost): (&str, &str)) -> Option<Opened> {
        let (relays, until) = (self.broker.relays()?, Instant::now() + TRIED);
        let mut unreachable = String::new();
        for _ in 0..TRIES_MAX {
            let leader = self.broker.other_leader(&self.caller, vhost, unreachable).await?;
            let log_in = LogIn { start_ok, limits: self.connection.limits(), virtual_host };
            // Asked before, so that no other leader is missed.
            let mut rights = Some(self.question_of_leader(vhost, &leader).watch(user, vhost, || ()));
            let opening = relay::open(relays, (&leader, vhost), &self.peer, log_in);
            let opened = tokio::select! {
                opened = timeout(self.broker.first_request, opening) => opened.ok().and_then(Result::ok),
                _ = until_refused(&mut rights) => None,
            };
            match opened {
                Some(Opened::There(relayed)) => return Some(Opened::There(Box::new(Relayed { rights, ..*relayed }))),
                Some(refused) => return Some(refused),
                None => unreachable = leader,
            }
            if Instant::now() >= until {
                break;
            }
        }
        None
    }
}

impl Session {
    /// The question whether a broker still leads, to which a connection is relayed. It has no credentials.
    fn question_of_leader(&self, vhost: &str, leader: &str) -> Question {
        let request = CallRequest::FindLeader { vhost: vhost.to_owned(), known: leader.to_owned() };
        Question::of(&self.broker.calls, &Call::new(request, &self.peer.caller("")))
    }
}

fn authorization_of(credentials: Credentials<'_>) -> String {
    format!("{}\0{}", credentials.user, credentials.password)
}
