//! The frames of a connection: what each asks for is done, in the order in which they came, and what there is to say is written to
//! one buffer.
//!
//! While Python decides about one method, the connection's other channels wait, too. Messages are stored once for all frames that
//! came together, and before any method that could show whether they were.

mod ending;
mod entering;
mod taking;
mod transacting;

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use penstock_engine::{Credit, Settle};
use penstock_wire::Name;
use penstock_wire::amqp::argument::FieldTable;
use penstock_wire::amqp::channel::{Channel, Mode, Received};
use penstock_wire::amqp::connection::{Connection, Effect, Event, Limits, Phase};
use penstock_wire::amqp::frame::{Frame, next_frame};
use penstock_wire::amqp::method::{Method, MethodId};
use penstock_wire::amqp::reply::{Exception, ReplyCode};
use penstock_wire::amqp::transaction::check_messages;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;

use super::consumers::{Consumers, Overdue};
use super::errors::{exception_of, too_many_channels};
use super::greeting::{MECHANISMS, MECHANISMS_WITH_CERTIFICATE, OFFERED, server_properties};
use super::outgoing::Outgoing;
use super::publisher::{Answers, Publisher};
use super::relay::Relayed;
use super::requests::{change_of, put_answer};
use super::space::Space;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::peer::Peer;
use crate::host::quotas::Allowance;
use crate::host::rights::Rights;

/// Messages of a channel are stored when they have so many bytes, even if more frames have come.
const STORED_AT_BYTES: usize = 1 << 20;

struct Open {
    channel: Channel,
    publisher: Publisher,
    credit: Arc<Credit>,
    /// Of consumers from now on; 0 is no limit.
    prefetch: u16,
    /// The queue that was declared last.
    last_queue: String,
    /// Whether its messages and settlements are kept until a commit.
    is_transactional: bool,
    /// Counts it among those of its user.
    _place: Allowance,
}

/// What a `basic.get` asks for.
struct Wanted {
    queue: String,
    no_ack: bool,
    channel: u16,
    method: MethodId,
}

/// See the module.
pub(super) struct Session {
    broker: Broker,
    peer: Peer,
    caller: Caller,
    vhost: String,
    /// As the broker knows it, once the client has entered.
    user: String,
    connection: Connection,
    channels: FxHashMap<u16, Open>,
    consumers: Consumers,
    /// Channels with messages that may be stored.
    unstored: Vec<u16>,
    /// Channels whose publishers wait for the disk, and those of them for which so much waits that nothing more may be read.
    waiting: FxHashSet<u16>,
    crowded: FxHashSet<u16>,
    /// Until when a limit of its user or virtual host lets nothing more be read, and the channel that asked.
    paused: Option<(Instant, u16)>,
    /// Whether the disk is full, so that what is published waits.
    is_disk_full: bool,
    /// Bytes of messages that the channels have and that are not stored yet.
    held_bytes: usize,
    is_over: bool,
    /// A message that the client wants to get and that there is no room for.
    wanted: Option<Wanted>,
    /// Whether messages that may return wait for room.
    returns_wait: bool,
    /// A channel whose commit waits for the disk, or for room for what may return.
    commit_waits: Option<u16>,
    space: Space,
    /// Whether its user may still be here, from when it entered until that is watched.
    rights: Option<Rights>,
    /// Whether it asked for a queue that goes with it.
    may_have_exclusive_queues: bool,
    /// The method by which the client has logged in, until it enters a virtual host, where another broker may lead that.
    start_ok: Option<Box<[u8]>>,
    /// Frames that are to be written.
    pub out: Vec<u8>,
}

impl Session {
    /// Greets a client. Clients choose EXTERNAL before a password, so it is offered only where it can succeed.
    pub fn greet(mut broker: Broker, peer: Peer, has_external: bool) -> Session {
        broker.counts_streams = false;
        let properties = server_properties();
        let properties = FieldTable::check(&properties).unwrap_or_default();
        let mut out = Vec::new();
        let mechanisms = if has_external { MECHANISMS_WITH_CERTIFICATE } else { MECHANISMS };
        let connection = Connection::greet(OFFERED, mechanisms, properties, &mut out);
        let (caller, vhost, channels, consumers) =
            (peer.caller(""), String::new(), FxHashMap::default(), Consumers::default());
        let (unstored, held_bytes, is_over) = (Vec::new(), 0, false);
        let (waiting, crowded) = (FxHashSet::default(), FxHashSet::default());
        let space = Space::new(&peer.state.account);
        Session {
            broker,
            peer,
            caller,
            vhost,
            user: String::new(),
            connection,
            channels,
            consumers,
            unstored,
            waiting,
            crowded,
            paused: None,
            is_disk_full: false,
            held_bytes,
            is_over,
            wanted: None,
            returns_wait: false,
            commit_waits: None,
            space,
            rights: None,
            may_have_exclusive_queues: false,
            start_ok: None,
            out,
        }
    }

    pub fn limits(&self) -> Limits {
        self.connection.limits()
    }

    /// Whether the limits were agreed.
    pub fn is_agreed(&self) -> bool {
        !matches!(self.phase(), Phase::Starting | Phase::LoggingIn | Phase::Securing | Phase::Tuning)
    }

    /// Whether the client has entered a virtual host, and nobody has ended the connection.
    pub fn is_running(&self) -> bool {
        self.connection.is_running()
    }

    pub fn phase(&self) -> Phase {
        self.connection.phase()
    }

    /// The bytes of messages that are incomplete or not stored yet, and of a log-in.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.start_ok.as_ref().map_or(0, |start_ok| start_ok.len())
    }

    /// Whether the socket is to be closed once everything is written.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether nothing more may be read: too much waits for the disk, or for room, or a limit is reached.
    pub fn is_crowded(&self) -> bool {
        let waits_for_disk = self.is_disk_full && !self.unstored.is_empty();
        let waits = self.paused.is_some() || self.commit_waits.is_some() || self.waits_for_room() || waits_for_disk;
        waits || !self.crowded.is_empty()
    }

    /// Takes note of what publishers have to wait for, and tells a client that wants to know.
    pub fn note_alarms(&mut self, is_disk_full: bool, is_memory_short: bool) {
        self.is_disk_full = is_disk_full;
        let event = match (is_disk_full, is_memory_short) {
            (false, false) => Event::Unblocked,
            (true, false) => Event::Blocked("low on disk"),
            (false, true) => Event::Blocked("low on memory"),
            (true, true) => Event::Blocked("low on disk & memory"),
        };
        self.connection.step(event, &mut self.out);
    }

    /// Whether something that was asked for waits for room among what is not written.
    pub fn waits_for_room(&self) -> bool {
        self.wanted.is_some() || self.returns_wait
    }

    /// Gives what tells when its user may not be here any more, once.
    pub fn take_rights(&mut self) -> Option<Rights> {
        self.rights.take()
    }

    /// Counts what is not written in the budget of memory.
    pub fn count_unwritten(&mut self) {
        self.space.count(self.out.len());
    }

    /// Does what a frame asks for. Return where the client goes on, when another broker leads the virtual host that it wants to enter:
    /// nothing more may be taken then.
    pub async fn take(&mut self, frame: Frame<'_>) -> Option<Box<Relayed>> {
        if frame.channel != 0 && self.connection.is_running() {
            self.take_of_channel(frame).await;
            return None;
        }
        let effect = self.connection.step(Event::Frame(frame), &mut self.out);
        let event = match effect {
            Some(Effect::LogIn { mechanism, response, .. }) => {
                self.start_ok = self.may_be_relayed().then(|| frame.payload.into());
                self.log_in(mechanism, response.0).await
            }
            Some(Effect::Enter { virtual_host }) => match self.enter(virtual_host).await {
                Ok(event) => event,
                Err(relayed) => return Some(relayed),
            },
            Some(Effect::UpdateSecret { secret, .. }) => self.update_secret(secret.0).await,
            // No mechanism has a challenge.
            Some(Effect::Answered { .. }) => {
                Event::Failed(Exception::of_no_method(ReplyCode::CommandInvalid, "nothing was asked"))
            }
            effect @ (None | Some(Effect::EndChannels | Effect::Close)) => {
                self.end(effect).await;
                return None;
            }
        };
        let effect = self.connection.step(event, &mut self.out);
        self.end(effect).await;
        None
    }

    /// Takes the frames of messages that `input` begins with, all of one channel, and returns how many bytes they have. It leaves to
    /// [`Session::take`] what takes more than keeping them.
    pub fn take_messages(&mut self, input: &[u8]) -> usize {
        let frame_bytes_max = self.connection.limits().frame_bytes_max;
        let Ok(Some((first, _))) = next_frame(input, frame_bytes_max) else { return 0 };
        let number = first.channel;
        if self.is_disk_full || !self.connection.is_running() {
            return 0;
        }
        let Some(open) = self.channels.get_mut(&number) else { return 0 };
        let before = open.channel.assembly().held_bytes();
        let taken = open.channel.take_messages(input, frame_bytes_max, STORED_AT_BYTES);
        self.held_bytes = self.held_bytes + open.channel.assembly().held_bytes() - before;
        if taken.has_complete && self.unstored.last() != Some(&number) {
            self.unstored.push(number);
        }
        taken.bytes
    }

    async fn take_of_channel(&mut self, frame: Frame<'_>) {
        let number = frame.channel;
        if !self.channels.contains_key(&number) {
            if let Err(exception) = self.connection.check_channel(self.channels.len()) {
                return self.fail(exception).await;
            }
            let place = match self.broker.channel(&self.user, &self.vhost) {
                Ok(place) => place,
                Err(max) => return self.fail(too_many_channels(&self.user, max)).await,
            };
            let channel = Channel::new(number, self.broker.message_bytes_max as u64);
            let (publisher, credit) = (Publisher::default(), Arc::new(Credit::new(u32::MAX)));
            let (last_queue, is_transactional) = (String::new(), false);
            let open = Open { channel, publisher, credit, prefetch: 0, last_queue, is_transactional, _place: place };
            self.channels.insert(number, open);
        }
        let Some(open) = self.channels.get_mut(&number) else { return };
        let before = open.channel.assembly().held_bytes();
        let taken = open.channel.take(frame, &mut self.out);
        self.held_bytes = self.held_bytes + open.channel.assembly().held_bytes() - before;
        let taken = match taken {
            Ok(Received::Nothing) => {
                if open.channel.mode() == Mode::Confirms {
                    open.publisher.confirm_from(open.channel.assembly());
                }
                Ok(())
            }
            Ok(Received::Published) if open.is_transactional => {
                let assembly = open.channel.assembly();
                let (count, bytes) = (assembly.complete_count(), assembly.message_bytes());
                check_messages(count, bytes, self.broker.message_bytes_max)
            }
            Ok(Received::Published) => {
                if self.unstored.last() != Some(&number) {
                    self.unstored.push(number);
                }
                let (is_much, may_return) = {
                    let assembly = open.channel.assembly();
                    (assembly.held_bytes() >= STORED_AT_BYTES, assembly.mandatory_bytes())
                };
                if !self.may_store(may_return) || !is_much { Ok(()) } else { self.store(number).await }
            }
            Ok(Received::Method(method)) => self.do_method(number, method).await,
            Ok(Received::Ends) => {
                let stored = self.store(number).await;
                self.consumers.end_channel(number).await;
                if let Some(mut open) = self.channels.remove(&number) {
                    self.held_bytes -= open.channel.assembly().held_bytes();
                    open.channel.ended(&mut self.out);
                }
                self.note_waiting(number);
                stored
            }
            Ok(Received::Over) => {
                // Its messages went when it was closed.
                self.channels.remove(&number);
                self.note_waiting(number);
                Ok(())
            }
            Err(exception) => Err(exception),
        };
        if let Err(exception) = taken {
            self.fail_channel(number, exception).await;
        }
    }

    /// Closes a channel, or the connection, after what came before was stored.
    async fn fail_channel(&mut self, number: u16, exception: Exception) {
        let _ = self.store(number).await;
        if exception.ends_connection() {
            return self.fail(exception).await;
        }
        self.consumers.end_channel(number).await;
        if let Some(open) = self.channels.get_mut(&number) {
            self.held_bytes -= open.channel.assembly().held_bytes();
            open.channel.fail(&exception, &mut self.out);
            self.held_bytes += open.channel.assembly().held_bytes();
            open.publisher = Publisher::default();
        }
        self.commit_waits = self.commit_waits.filter(|waiting| *waiting != number);
        self.note_waiting(number);
    }

    async fn do_method(&mut self, number: u16, method: Method<'_>) -> Result<(), Exception> {
        let refused = |code, text: String| Err(Exception::new(code, text, method.id()));
        let (tag, how) = match method {
            Method::BasicAck { delivery_tag, multiple } => ((delivery_tag, multiple), Settle::Ack),
            Method::BasicNack { delivery_tag, multiple, requeue } => ((delivery_tag, multiple), how(requeue)),
            Method::BasicReject { delivery_tag, requeue: true } => ((delivery_tag, false), Settle::RequeueFailed),
            Method::BasicReject { delivery_tag, requeue: false } => ((delivery_tag, false), Settle::Reject),
            Method::BasicQos { prefetch_size, prefetch_count, global } => {
                if prefetch_size != 0 {
                    return refused(ReplyCode::NotImplemented, format!("prefetch_size!=0 ({prefetch_size})"));
                }
                self.set_prefetch(number, prefetch_count, global);
                Method::BasicQosOk {}.put(number, &mut self.out);
                return Ok(());
            }
            Method::BasicConsume { .. } => return self.consume(number, method).await,
            Method::BasicGet { queue, no_ack } => {
                self.store(number).await?;
                let Some(open) = self.channels.get(&number) else { return Ok(()) };
                let queue = if queue.is_empty() { open.last_queue.clone() } else { queue.to_text() };
                return self.get(Wanted { queue, no_ack, channel: number, method: method.id() }).await;
            }
            Method::BasicCancel { consumer_tag, nowait } => {
                self.cancel(number, consumer_tag.as_bytes()).await;
                if !nowait {
                    Method::BasicCancelOk { consumer_tag }.put(number, &mut self.out);
                }
                return Ok(());
            }
            Method::BasicRecover { requeue: false } | Method::BasicRecoverAsync { requeue: false } => {
                return refused(ReplyCode::NotImplemented, "requeue=false".to_owned());
            }
            Method::BasicRecover { .. } | Method::BasicRecoverAsync { .. } => {
                self.consumers.note_settled(number, (0, true), Settle::Requeue, method.id())?;
                self.consumers.settle().await;
                if let Method::BasicRecover { .. } = method {
                    Method::BasicRecoverOk {}.put(number, &mut self.out);
                }
                return Ok(());
            }
            Method::ChannelFlow { active } => {
                self.consumers.set_flow(number, active).await;
                Method::ChannelFlowOk { active }.put(number, &mut self.out);
                return Ok(());
            }
            Method::ChannelFlowOk { .. } | Method::BasicCancelOk { .. } => return Ok(()),
            Method::TxSelect {} => return self.begin_transactions(number).await,
            Method::TxCommit {} => return self.commit(number).await,
            Method::TxRollback {} => {
                self.roll_back(number);
                return Ok(());
            }
            _ => return self.change(number, method).await,
        };
        self.consumers.note_answer(number, tag, how, method.id())
    }

    /// Changes exchanges, queues or bindings.
    async fn change(&mut self, number: u16, method: Method<'_>) -> Result<(), Exception> {
        if self.looks_for_replies(number, &method)? {
            return Ok(());
        }
        self.store(number).await?;
        self.consumers.settle().await;
        let Some(open) = self.channels.get_mut(&number) else { return Ok(()) };
        let Some((wanted, nowait)) = change_of(&method, &open.last_queue) else {
            let text = format!("{} is not served yet", method.name());
            return Err(Exception::new(ReplyCode::NotImplemented, text, method.id()));
        };
        self.may_have_exclusive_queues |= matches!(method, Method::QueueDeclare { exclusive: true, .. });
        let changed = self.broker.change(&self.caller, &self.vhost, wanted).await;
        let outcome = changed.map_err(|refused| exception_of(&refused, method.id()))?;
        if !nowait {
            put_answer(&method, &outcome, number, &mut self.out);
        }
        if let Method::QueueDeclare { .. } = method {
            open.last_queue = outcome.name;
        }
        Ok(())
    }

    /// Stores what came on a channel, unless that is part of a transaction.
    async fn store(&mut self, number: u16) -> Result<(), Exception> {
        let Some(open) = self.channels.get_mut(&number).filter(|open| !open.is_transactional) else { return Ok(()) };
        let frame_bytes_max = self.connection.limits().frame_bytes_max;
        let answers = Answers { channel: number, frame_bytes_max, out: &mut self.out };
        let place = (&self.broker, &self.caller, Name::cut(&self.vhost));
        let (before, may_return) =
            (open.channel.assembly().held_bytes(), open.channel.assembly().mandatory_bytes() > 0);
        let stored = open.publisher.store(place, open.channel.assembly_mut(), answers).await;
        self.held_bytes = self.held_bytes + open.channel.assembly().held_bytes() - before;
        if may_return {
            self.count_unwritten();
        }
        self.note_waiting(number);
        self.paused = self.pause_of(number).or(self.paused);
        stored
    }

    /// How long a limit lets nothing more be read. All publishers of a connection have the same limits.
    fn pause_of(&mut self, number: u16) -> Option<(Instant, u16)> {
        let pause = self.channels.get_mut(&number)?.publisher.pause()?;
        Some((Instant::now() + pause, number))
    }

    /// Until when a limit lets nothing more be read.
    pub fn paused_until(&self) -> Option<Instant> {
        self.paused.map(|(until, _)| until)
    }

    /// Asks again whether more may be read, once a pause is over.
    fn look_at_pause(&mut self) {
        if let Some((_, number)) = self.paused.filter(|(until, _)| *until <= Instant::now()) {
            self.paused = self.pause_of(number);
        }
    }

    /// Notes whether the publisher of a channel waits for the disk: only those are looked at, of thousands of channels.
    fn note_waiting(&mut self, number: u16) {
        let publisher = self.channels.get(&number).map(|open| &open.publisher);
        let note = |set: &mut FxHashSet<u16>, is_in: bool| if is_in { set.insert(number) } else { set.remove(&number) };
        note(&mut self.waiting, publisher.is_some_and(Publisher::waits));
        note(&mut self.crowded, publisher.is_some_and(Publisher::is_crowded));
    }

    /// Whether messages may be stored of which so many bytes may return. If not, nothing more is read until they may.
    fn may_store(&mut self, may_return: usize) -> bool {
        let may = may_return == 0 || self.space.allows(self.out.len(), may_return);
        self.returns_wait |= !may;
        may && !self.is_disk_full
    }

    async fn store_all(&mut self) {
        self.returns_wait = false;
        for number in std::mem::take(&mut self.unstored) {
            let may_return = self.channels.get(&number).map_or(0, |open| open.channel.assembly().mandatory_bytes());
            if !self.may_store(may_return) {
                self.unstored.push(number);
                continue;
            }
            if let Err(exception) = self.store(number).await {
                self.fail_channel(number, exception).await;
            }
            let open = self.channels.get(&number);
            if open.is_some_and(|open| open.channel.assembly().complete_count() > 0) {
                self.unstored.push(number);
            }
        }
    }

    /// Does what frames left to do together: settles, stores, tells what is on the disk by now, delivers until so much is not
    /// written.
    pub async fn work(&mut self, stopping: bool, out_bytes_max: usize) {
        self.consumers.settle().await;
        self.store_all().await;
        self.tell_synced().await;
        self.look_at_pause();
        self.get_wanted().await;
        self.commit_waiting().await;
        if !self.connection.is_running() {
            return;
        }
        let frame_bytes_max = self.connection.limits().frame_bytes_max;
        let (out, space) = (&mut self.out, &mut self.space);
        let mut outgoing = Outgoing { out, bytes_max: out_bytes_max, frame_bytes_max, space };
        let ended = match self.consumers.take_turns(&mut outgoing, stopping).await {
            Ok(ended) => ended,
            Err(exception) => return self.fail(exception).await,
        };
        for ended in ended {
            if self.connection.capabilities().consumer_cancel_notify {
                let tag = String::from_utf8_lossy(&ended.tag);
                Method::BasicCancel { consumer_tag: Name::cut(&tag), nowait: true }.put(ended.channel, &mut self.out);
            }
        }
        for Overdue { channel, limit_ms } in self.consumers.overdue().await {
            let text = format!(
                "delivery acknowledgement on channel {channel} timed out. Timeout value used: {limit_ms} ms. This timeout value \
                 can be configured, see consumers doc guide to learn more"
            );
            self.fail_channel(channel, Exception::of_no_method(ReplyCode::PreconditionFailed, text)).await;
        }
    }

    /// Says what waited for the disk and is there.
    async fn tell_synced(&mut self) {
        let frame_bytes_max = self.connection.limits().frame_bytes_max;
        if self.waiting.is_empty() {
            return;
        }
        for number in self.waiting.iter().copied().collect::<Vec<_>>() {
            let Some(open) = self.channels.get_mut(&number) else { continue };
            let mut answers = Answers { channel: number, frame_bytes_max, out: &mut self.out };
            let told = open.publisher.tell(open.channel.assembly(), &mut answers);
            self.note_waiting(number);
            if let Err(exception) = told {
                self.fail_channel(number, exception).await;
            }
        }
    }

    /// Waits until there is something to do without a frame. False says that the disk has failed.
    pub async fn until_work(&self) -> bool {
        let publishers = self.waiting.iter().filter_map(|number| Some(&self.channels.get(number)?.publisher));
        let waiting: Vec<_> = publishers.filter_map(Publisher::oldest_waiting).collect();
        let synced = async {
            if waiting.is_empty() {
                return pending().await;
            }
            let mut waits: Vec<_> = waiting.iter().map(|places| Box::pin(places.wait())).collect();
            poll_fn(|cx| {
                let ready = waits.iter_mut().find_map(|wait| match wait.as_mut().poll(cx) {
                    Poll::Ready(synced) => Some(synced),
                    Poll::Pending => None,
                });
                ready.map_or(Poll::Pending, Poll::Ready)
            })
            .await
        };
        tokio::select! {
            synced = synced => synced.is_ok(),
            () = self.consumers.until_turn() => true,
        }
    }

    /// Whether deliveries wait for nothing but that more is written.
    pub fn is_held_up(&self) -> bool {
        self.consumers.are_held_up()
    }
}

fn how(requeue: bool) -> Settle {
    if requeue { Settle::Requeue } else { Settle::Reject }
}
