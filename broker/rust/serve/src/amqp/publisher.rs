//! One channel's publisher: messages that came are stored in rounds, those that found no queue return, and confirms are sent where
//! the client asked for them.

use std::time::Duration;

use penstock_engine::Places;
use penstock_wire::Name;
use penstock_wire::amqp::assembly::Assembly;
use penstock_wire::amqp::confirms::{Answer, Confirms};
use penstock_wire::amqp::content::put_content;
use penstock_wire::amqp::method::{Method, MethodId};
use penstock_wire::amqp::reply::{Exception, ReplyCode};

use super::arrived::Arrived;
use super::errors::{closes_channel, exception_of};
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::outcomes::Decided;
use crate::host::publishing::Publishing;
use crate::host::replies::Letter;

const PUBLISH: MethodId = MethodId { class: 60, method: 40 };

/// See the module.
#[derive(Default)]
pub(super) struct Publisher {
    /// There with the first message.
    session: Option<Box<Publishing>>,
    /// How many messages the session has taken.
    taken_count: u64,
    /// The confirms, and how many messages came before the client asked for them.
    confirms: Option<(Confirms, u64)>,
}

/// Where answers go, and how large their frames may be.
pub(super) struct Answers<'a> {
    pub channel: u16,
    pub frame_bytes_max: u32,
    pub out: &'a mut Vec<u8>,
}

impl Publisher {
    /// Confirms messages from the next one on.
    pub fn confirm_from(&mut self, assembly: &Assembly) {
        let before = self.taken_count + assembly.complete_count() as u64;
        self.confirms.get_or_insert_with(|| (Confirms::default(), before));
    }

    /// Whether so much waits for the disk that nothing more may be stored.
    pub fn is_crowded(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_crowded())
    }

    /// See [`Publishing::pause`].
    pub fn pause(&mut self) -> Option<Duration> {
        self.session.as_mut()?.pause()
    }

    /// Whether messages are stored that wait for the disk.
    pub fn waits(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.waits())
    }

    /// See [`Publishing::oldest_waiting`]; nothing when neither the client nor the next message waits for it.
    pub fn oldest_waiting(&self) -> Option<Places> {
        let session = self.session.as_ref()?;
        (self.confirms.is_some() || session.is_crowded()).then(|| session.oldest_waiting()).flatten()
    }

    /// Stores what came, as far as there is space for what waits, and says what became of it.
    ///
    /// # Errors
    /// A refusal that closes the channel, or the connection.
    pub async fn store(
        &mut self,
        (broker, caller, vhost): (&Broker, &Caller, Name<'_>),
        assembly: &mut Assembly,
        mut answers: Answers<'_>,
    ) -> Result<(), Exception> {
        while assembly.complete_count() > 0 && !self.is_crowded() {
            let session = match &mut self.session {
                Some(session) => session,
                None => {
                    let opened = Publishing::open(broker, caller.clone(), vhost, None, Name::EMPTY).await;
                    let opened = opened.map_err(|refused| exception_of(&refused, PUBLISH))?;
                    self.session.insert(Box::new(opened))
                }
            };
            let before_reply = assembly.before_reply();
            let (taken, stored) = if before_reply == Some(0) {
                session.pass(send_reply(broker, vhost, assembly));
                (1, Ok(()))
            } else {
                let mut arrived = Arrived::new(assembly, before_reply.unwrap_or(assembly.complete_count()));
                let stored = session.store(&mut arrived).await;
                (arrived.taken(), stored)
            };
            let told = self.tell(assembly, &mut answers);
            self.taken_count += taken as u64;
            assembly.advance(taken);
            told?;
            stored.map_err(|refused| exception_of(&refused, PUBLISH))?;
        }
        Ok(())
    }

    /// Says what became of messages. Those that return are still in the assembly.
    ///
    /// # Errors
    /// A message that is refused in a way that closes the channel.
    pub fn tell(&mut self, assembly: &Assembly, answers: &mut Answers<'_>) -> Result<(), Exception> {
        let Some(session) = &mut self.session else { return Ok(()) };
        session.note_synced();
        let (confirms, taken_count) = (&mut self.confirms, self.taken_count);
        session.tell(|decided| tell(decided, confirms, (assembly, taken_count), answers)).unwrap_or(Ok(()))
    }

    /// Forgets what waits for a disk that has failed.
    pub fn forget_waiting(&mut self) {
        self.session.iter_mut().for_each(|session| session.forget_waiting());
    }
}

/// Sends the oldest message, a direct reply, to the client that waits for it. Says whether it does not return.
fn send_reply(broker: &Broker, vhost: Name<'_>, assembly: &Assembly) -> bool {
    let Some(message) = assembly.messages().next() else { return true };
    let (vhost, name) = (vhost.to_text(), message.routing_key.as_bytes());
    let letter = || Letter { properties: message.properties.as_bytes().to_vec(), body: message.body.to_vec() };
    broker.replies.send(&vhost, name, letter) || !message.mandatory
}

fn tell(
    decided: &Decided,
    confirms: &mut Option<(Confirms, u64)>,
    (assembly, taken_count): (&Assembly, u64),
    answers: &mut Answers<'_>,
) -> Result<(), Exception> {
    put_returned(decided, (assembly, taken_count), answers);
    let refused = decided.rejected.iter().map(|(_, _, refused)| refused).find(|refused| closes_channel(refused.kind));
    if let Some((confirms, before)) = confirms {
        let tags = |first: u64, last: u64| (last > *before).then(|| (first.max(*before + 1) - *before, last - *before));
        let mut confirmed: Vec<_> = decided.confirmed.iter().filter_map(|(first, last)| tags(*first, *last)).collect();
        if !decided.returned.is_empty() {
            confirmed.extend(decided.returned.iter().filter_map(|(number, _)| tags(*number, *number)));
            confirmed.sort_unstable();
        }
        // A channel that closes says nothing more of messages that were not stored.
        if refused.is_none() {
            let rejected = decided.rejected.iter().filter_map(|(first, last, _)| tags(*first, *last));
            let rejected: Vec<_> = rejected.collect();
            confirms.answer(Answer::Nack, &rejected, answers.channel, answers.out);
        }
        confirms.answer(Answer::Ack, &confirmed, answers.channel, answers.out);
    }
    refused.map_or(Ok(()), |refused| Err(exception_of(refused, PUBLISH)))
}

/// Appends the messages that found no queue, which the assembly still has.
fn put_returned(decided: &Decided, (assembly, taken_count): (&Assembly, u64), answers: &mut Answers<'_>) {
    let mut numbers = decided.returned.iter().map(|(number, _)| *number).peekable();
    if numbers.peek().is_none() {
        return;
    }
    for (number, message) in (taken_count + 1..).zip(assembly.messages()) {
        if numbers.next_if_eq(&number).is_none() {
            continue;
        }
        let (exchange, routing_key) = (message.exchange, message.routing_key);
        let (reply_code, reply_text) = (ReplyCode::NoRoute.number(), Name::cut(ReplyCode::NoRoute.name()));
        Method::BasicReturn { reply_code, reply_text, exchange, routing_key }.put(answers.channel, answers.out);
        put_content(answers.channel, message.properties.as_bytes(), message.body, answers.frame_bytes_max, answers.out);
    }
}
