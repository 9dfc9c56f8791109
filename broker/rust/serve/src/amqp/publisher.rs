//! One channel's publisher: messages that came are stored in rounds, or together in transactions; those that found no queue
//! return, and confirms are sent where the client asked for them.

use std::collections::VecDeque;
use std::time::Duration;

use penstock_engine::{Places, TransactionSettlement};
use penstock_wire::Name;
use penstock_wire::amqp::assembly::{Assembly, Publish};
use penstock_wire::amqp::confirms::{Answer, Confirms};
use penstock_wire::amqp::content::put_content;
use penstock_wire::amqp::method::{Method, MethodId};
use penstock_wire::amqp::replies::is_reply;
use penstock_wire::amqp::reply::{Exception, ReplyCode};

use super::arrived::{Arrived, Transacted};
use super::errors::{closes_channel, exception_of, led_elsewhere};
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::gather::Source;
use crate::host::outcomes::Decided;
use crate::host::publishing::Publishing;
use crate::host::publishing::committing::{Commit, commit_settlements};
use crate::host::refusal::Kind;
use crate::host::replies::Letter;

const PUBLISH: MethodId = MethodId { class: 60, method: 40 };
const COMMIT: MethodId = MethodId { class: 90, method: 20 };

/// Commits of one channel that may wait for the disk at once.
const COMMITS_MAX: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct Publisher {
    /// There with the first message.
    session: Option<Box<Publishing>>,
    /// How many messages the session has taken.
    taken_count: u64,
    /// The confirms, and how many messages came before the client asked for them.
    confirms: Option<(Confirms, u64)>,
    /// Transactions that were applied and not answered yet, with what they wait for.
    commits: VecDeque<Option<Places>>,
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
        self.session.as_ref().is_some_and(|session| session.is_crowded()) || self.commits.len() >= COMMITS_MAX
    }

    /// See [`Publishing::pause`].
    pub fn pause(&mut self) -> Option<Duration> {
        self.session.as_mut()?.pause()
    }

    /// Whether messages are stored that wait for the disk.
    pub fn waits(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.waits()) || !self.commits.is_empty()
    }

    /// See [`Publishing::oldest_waiting`]; nothing when neither the client nor the next message waits for it.
    pub fn oldest_waiting(&self) -> Option<Places> {
        if let Some(Some(places)) = self.commits.front() {
            return Some(places.clone());
        }
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
            let session = opened(&mut self.session, (broker, caller, vhost)).await?;
            let before_reply = assembly.before_reply();
            let (taken, stored) = if before_reply == Some(0) {
                let is_sent = assembly.messages().next().is_none_or(|message| send_reply(broker, vhost, &message));
                session.pass(is_sent);
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

    /// Applies a transaction of all messages that came, and of settlements. Returns, for each settlement, how many messages it
    /// settled, and their bytes.
    ///
    /// # Errors
    /// A refusal that closes the channel: nothing of the transaction was applied.
    pub async fn commit(
        &mut self,
        (broker, caller, vhost): (&Broker, &Caller, Name<'_>),
        assembly: &mut Assembly,
        settlements: &[TransactionSettlement<'_>],
        mut answers: Answers<'_>,
    ) -> Result<Vec<(u64, u64)>, Exception> {
        let mut transacted = Transacted::new(assembly);
        let committed = if transacted.is_empty() {
            commit_settlements(settlements).await
        } else {
            let session = opened(&mut self.session, (broker, caller, vhost)).await?;
            session.commit(&mut transacted, settlements).await
        };
        let Commit { returned, settled, waits_for } = committed.map_err(|refused| exception_of(&refused, COMMIT))?;
        let mut returned = returned.into_iter().peekable();
        let mut stored_count = 0;
        for message in assembly.messages() {
            let returns = if is_reply(message.exchange.as_bytes(), message.routing_key.as_bytes()) {
                !send_reply(broker, vhost, &message)
            } else {
                stored_count += 1;
                returned.next_if_eq(&(stored_count - 1)).is_some()
            };
            if returns {
                put_return(&message, &mut answers);
            }
        }
        assembly.advance(assembly.complete_count());
        self.commits.push_back(waits_for);
        self.tell_commits(&mut answers);
        Ok(settled)
    }

    /// Answers the commits that are on the disk.
    fn tell_commits(&mut self, answers: &mut Answers<'_>) {
        let is_done = |waits_for: &Option<Places>| waits_for.as_ref().is_none_or(Places::are_synced);
        while self.commits.front().is_some_and(is_done) {
            self.commits.pop_front();
            Method::TxCommitOk {}.put(answers.channel, answers.out);
        }
    }

    /// Says what became of messages. Those that return are still in the assembly.
    ///
    /// # Errors
    /// A message that is refused in a way that closes the channel.
    pub fn tell(&mut self, assembly: &Assembly, answers: &mut Answers<'_>) -> Result<(), Exception> {
        self.tell_commits(answers);
        let Some(session) = &mut self.session else { return Ok(()) };
        session.note_synced();
        let led_elsewhere = session.shard().is_deposed().then(|| led_elsewhere(session.shard().name()));
        let (confirms, taken_count) = (&mut self.confirms, self.taken_count);
        session
            .tell(|decided| tell(decided, confirms, (assembly, taken_count), led_elsewhere, answers))
            .unwrap_or(Ok(()))
    }

    /// Whether another broker leads the virtual host now.
    pub fn is_deposed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.shard().is_deposed())
    }

    /// Forgets what waits for a disk that has failed.
    pub fn forget_waiting(&mut self) {
        self.commits.clear();
        self.session.iter_mut().for_each(|session| session.forget_waiting());
    }
}

/// The session of a publisher, which is opened with its first message.
async fn opened<'a>(
    session: &'a mut Option<Box<Publishing>>,
    (broker, caller, vhost): (&Broker, &Caller, Name<'_>),
) -> Result<&'a mut Publishing, Exception> {
    Ok(match session {
        Some(session) => session,
        None => {
            let opened = Publishing::open(broker, caller.clone(), vhost, None, Name::EMPTY).await;
            let opened = opened.map_err(|refused| exception_of(&refused, PUBLISH))?;
            session.insert(Box::new(opened))
        }
    })
}

/// Sends a direct reply to the client that waits for it. Says whether it does not return.
fn send_reply(broker: &Broker, vhost: Name<'_>, message: &Publish<'_>) -> bool {
    let (vhost, name) = (vhost.to_text(), message.routing_key.as_bytes());
    let letter = || Letter { properties: message.properties.as_bytes().to_vec(), body: message.body.to_vec() };
    broker.replies.send(&vhost, name, letter) || !message.mandatory
}

fn tell(
    decided: &Decided,
    confirms: &mut Option<(Confirms, u64)>,
    (assembly, taken_count): (&Assembly, u64),
    led_elsewhere: Option<Exception>,
    answers: &mut Answers<'_>,
) -> Result<(), Exception> {
    put_returned(decided, (assembly, taken_count), answers);
    let mut rejected = decided.rejected.iter().map(|(_, _, refused)| refused);
    let refused = rejected.clone().find(|refused| closes_channel(refused.kind));
    let refused = refused.map(|refused| exception_of(refused, PUBLISH));
    // A new leader would take them: that is no answer to a message.
    let refused =
        refused.or_else(|| led_elsewhere.filter(|_| rejected.any(|refused| refused.kind == Kind::Unavailable)));
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
    refused.map_or(Ok(()), Err)
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
        put_return(&message, answers);
    }
}

fn put_return(message: &Publish<'_>, answers: &mut Answers<'_>) {
    let (exchange, routing_key) = (message.exchange, message.routing_key);
    let (reply_code, reply_text) = (ReplyCode::NoRoute.number(), Name::cut(ReplyCode::NoRoute.name()));
    Method::BasicReturn { reply_code, reply_text, exchange, routing_key }.put(answers.channel, answers.out);
    put_content(answers.channel, message.properties.as_bytes(), message.body, answers.frame_bytes_max, answers.out);
}
