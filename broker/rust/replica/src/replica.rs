//! One replica of a shard: its log, its promise, its role, and how events reach them.
//!
//! Invariants: nothing of an epoch below the promise is followed, and a promise is on the disk before it counts (rule 1);
//! a process never goes on in an epoch that another boot began (rule 4).

use std::collections::{BTreeMap, BTreeSet};

use crate::state::{Asked, Campaign, CampaignStage, Following, FollowingStage, Leading, Log, Replica, State, Stored};
use crate::{
    BrokerId, ChangeId, Effect, Epoch, Event, Halt, Leader, Link, Message, Millis, Outcome, Position, ReadId,
    ReplicaId, Role, Settings, ShardRecord, Version,
};

impl Replica {
    /// A replica at the start of its process. `me` has a new boot each time.
    #[must_use]
    pub fn new(me: Leader, stored: Stored, settings: Settings, now: Millis) -> Replica {
        let Stored { promised, epochs, end, high_watermark } = stored;
        Replica {
            me,
            settings,
            now,
            log: Log { epochs, end, synced: end, committed: high_watermark.min(end), cutting: None, behind: None },
            promised,
            promising: None,
            record: None,
            links: BTreeMap::new(),
            ended_sessions: BTreeSet::new(),
            state: State::Following(Box::new(Following::of_none(now))),
            asked: None,
            number: me.boot.rotate_left(32),
            effects: Vec::new(),
            role: Role::Follower { of: None },
            yields: false,
            placed: BTreeSet::new(),
        }
    }

    /// Takes an event; returns what is to be done, in order.
    pub fn step(&mut self, now: Millis, event: Event) -> Vec<Effect> {
        self.now = self.now.max(now);
        if !matches!(self.state, State::Halted(_)) {
            self.take(event);
            self.watch_disk();
            self.report_role();
        }
        std::mem::take(&mut self.effects)
    }

    /// The position below which everything is committed, as far as this replica knows.
    #[must_use]
    pub fn high_watermark(&self) -> Position {
        self.log.committed
    }

    /// The highest epoch that it has promised: none below is followed any more.
    #[must_use]
    pub fn promised(&self) -> Epoch {
        self.promised
    }

    /// Up to where the log equals the leader's for certain, which is at least as far as this replica acknowledged. `None` while they are
    /// compared, and where this replica follows no leader.
    #[must_use]
    pub fn verified(&self) -> Option<Position> {
        match &self.state {
            State::Following(following) if following.stage == FollowingStage::Streaming => Some(following.verified),
            _ => None,
        }
    }

    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Up to where each other replica has acknowledged this leader's log in its epoch. Replicas that have acknowledged nothing yet are
    /// left out, and there are none where this replica does not lead.
    #[must_use]
    pub fn acknowledged(&self) -> Vec<(ReplicaId, Position)> {
        let State::Leading(leading) = &self.state else { return Vec::new() };
        let known = leading.peers.iter().filter(|(_, peer)| peer.is_streaming || peer.acknowledged > 0);
        known.map(|(&replica, peer)| (replica, peer.acknowledged)).collect()
    }

    /// The record of the shard, as last read.
    #[must_use]
    pub fn record(&self) -> Option<&ShardRecord> {
        self.record.as_ref().map(|(record, _)| record)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Tick => self.tick(),
            Event::Link(broker, link) => {
                self.links.insert(broker, (link, self.now));
                if link != Link::Up {
                    self.lose_link(broker);
                }
            }
            Event::Session { broker, is_alive: true } => _ = self.ended_sessions.remove(&broker),
            Event::Session { broker, is_alive: false } => _ = self.ended_sessions.insert(broker),
            Event::Received { from, message } => self.receive(from, message),
            Event::Read { read, record } => self.take_read(read, record),
            Event::Answered { change, outcome } => self.take_outcome(change, outcome),
            Event::Promised(epoch) => self.take_promise(epoch),
            Event::Appended(end) => self.take_appended(end),
            Event::Sent { to, until } => self.take_sent(to, until),
            Event::Synced(position) => self.take_synced(position),
            Event::Truncated(position) => self.take_truncated(position),
            Event::DiskFailed => self.halt(Halt::DiskFailed),
            Event::HandOver(to) => self.hand_over(to),
            Event::Yield(yields) => self.yields = yields,
            Event::Placed(brokers) => self.place(brokers),
        }
    }

    fn tick(&mut self) {
        if self.asked.is_some_and(|asked| self.now >= asked.at + self.settings.ask_again_after) {
            self.ask_coordinator();
        }
        match &self.state {
            State::Following(_) => self.tick_follower(),
            State::Leading(_) => self.tick_leader(),
            State::Halted(_) => (),
        }
    }

    fn receive(&mut self, from: BrokerId, message: Message) {
        if let Some(epoch) = message.leader_epoch() {
            if epoch < self.promised {
                return self.send(from, Message::Fenced { epoch: self.promised });
            }
            if epoch > self.promised {
                return self.promise(epoch, from);
            }
        }
        match message {
            Message::PreVote { epoch, question } => {
                let agrees = self.misses_leader(epoch);
                self.send(from, Message::PreVoteAnswer { epoch: self.promised, question, agrees });
            }
            Message::PreVoteAnswer { question, agrees, .. } => self.take_vote(from, question, agrees),
            Message::Hello { epoch, .. } | Message::Fenced { epoch } if epoch > self.promised => {
                self.suspect_self(epoch)
            }
            message => match self.state {
                State::Following(_) => self.receive_as_follower(from, message),
                State::Leading(_) => self.receive_as_leader(from, message),
                State::Halted(_) => (),
            },
        }
    }

    /// Stores a promise, unless a higher one is being stored.
    pub(crate) fn promise(&mut self, epoch: Epoch, leader: BrokerId) {
        if self.promising.is_none_or(|(promising, _)| promising < epoch) {
            self.promising = Some((epoch, leader));
            self.effects.push(Effect::Promise(epoch));
        }
    }

    fn take_promise(&mut self, epoch: Epoch) {
        self.promised = self.promised.max(epoch);
        let Some((promised, leader)) = self.promising.take_if(|(promising, _)| *promising <= epoch) else { return };
        if leader == self.me.broker {
            self.begin(promised);
        } else {
            self.follow(promised, leader);
        }
    }

    fn take_synced(&mut self, position: Position) {
        self.log.synced = self.log.synced.max(position);
        match self.state {
            State::Following(_) => self.acknowledge(),
            State::Leading(_) => self.advance(),
            State::Halted(_) => (),
        }
    }

    /// A number for a question or a request. Each has its own, also after the process was restarted or the replica began anew,
    /// since each start has another boot: an answer to another one is known as such.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    /// Asks the coordinator for the record. The answer to an earlier question does not count any more.
    pub(crate) fn ask_coordinator(&mut self) {
        let read = self.next_number();
        self.asked = Some(Asked { read, at: self.now, promised: self.promised });
        self.effects.push(Effect::Read(read));
    }

    /// Asks the coordinator to change the record; returns the number of the request.
    pub(crate) fn change(&mut self, base: Version, record: ShardRecord) -> ChangeId {
        let change = self.next_number();
        self.effects.push(Effect::Change { change, base, record });
        change
    }

    fn take_read(&mut self, read: Option<ReadId>, record: Option<(ShardRecord, Version)>) {
        let answered = read.and_then(|read| self.asked.take_if(|asked| asked.read == read));
        if read.is_some() && answered.is_none() {
            return;
        }
        if let Some(asked) = answered
            && record.as_ref().map_or(0, |(record, _)| record.epoch) < asked.promised
        {
            return self.halt(Halt::CoordinatorWentBack);
        }
        let Some((record, version)) = record else { return };
        let known = self.record.as_ref().map_or(0, |(known, _)| known.epoch);
        // A watch may be behind; only an answer to a question is known to be new.
        if record.epoch < known || (read.is_none() && record.epoch == known && !self.keeps_watched()) {
            return;
        }
        self.adopt(record, version, read.is_some());
    }

    /// Whether a watched record of the same epoch replaces the known one: a follower has to know whether it is in sync when
    /// its leader dies. Before it changes the record it reads it, so an old one does no harm.
    fn keeps_watched(&self) -> bool {
        let State::Following(following) = &self.state else { return false };
        let is_changing = |campaign: &Campaign| matches!(campaign.stage, CampaignStage::Changing(..));
        self.promising.is_none() && !following.campaign.as_ref().is_some_and(is_changing)
    }

    /// Takes a record that the coordinator has, or had.
    fn adopt(&mut self, record: ShardRecord, version: Version, is_answer: bool) {
        let leads = record.leader == self.me && record.epoch > self.promised;
        let epoch = record.epoch;
        let is_news = self.record().is_none_or(|known| known.epoch < epoch);
        self.replace_record(record, version);
        match &self.state {
            State::Leading(leading) if epoch > leading.epoch => self.step_down(),
            State::Leading(_) => self.take_membership(),
            State::Following(_) if leads => self.promise(epoch, self.me.broker),
            State::Following(_) if is_answer => self.take_campaign_read(is_news),
            State::Following(_) | State::Halted(_) => (),
        }
    }

    fn take_outcome(&mut self, change: ChangeId, outcome: Outcome) {
        match self.state {
            State::Following(_) => self.take_election(change, outcome),
            State::Leading(_) => self.take_change(change, outcome),
            State::Halted(_) => (),
        }
    }

    /// Asks who leads, because a replica has promised a higher epoch than this one knows.
    fn suspect_self(&mut self, epoch: Epoch) {
        if self.asked.is_none() && self.record.as_ref().is_none_or(|(record, _)| record.epoch < epoch) {
            self.ask_coordinator();
        }
    }

    /// Knows the record that a change made; answers to earlier questions are out of date.
    pub(crate) fn know(&mut self, record: ShardRecord, version: Version) {
        self.replace_record(record, version);
        self.asked = None;
    }

    fn replace_record(&mut self, record: ShardRecord, version: Version) {
        let before = self.record.replace((record, version));
        self.forget_strangers(&before.map(|(before, _)| before.replicas).unwrap_or_default());
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    pub(crate) fn send(&mut self, to: BrokerId, message: Message) {
        self.effects.push(Effect::Send { to, message });
    }

    pub(crate) fn commit(&mut self, position: Position) {
        if position > self.log.committed {
            self.log.committed = position;
            self.effects.push(Effect::Commit(position));
        }
    }

    pub(crate) fn halt(&mut self, why: Halt) {
        self.state = State::Halted(why);
    }

    /// Notes since when the disk is where it is.
    fn watch_disk(&mut self) {
        let log = &mut self.log;
        log.behind = match log.behind {
            _ if log.synced >= log.end => None,
            Some((synced, since)) if synced == log.synced => Some((synced, since)),
            _ => Some((log.synced, self.now)),
        };
    }

    /// Whether the disk has taken nothing for a long time although there is something to take.
    pub(crate) fn is_stalled(&self) -> bool {
        let within = self.settings.stall_after;
        self.log.behind.is_some_and(|(_, since)| self.now >= since + within)
    }

    /// Stops leading; the next leader's beat says whom to follow.
    pub(crate) fn step_down(&mut self) {
        self.state = State::Following(Box::new(Following::of_none(self.now)));
    }

    /// The other brokers with a replica.
    pub(crate) fn others(&self) -> Vec<BrokerId> {
        let Some((record, _)) = &self.record else { return Vec::new() };
        record.brokers().into_iter().filter(|&broker| broker != self.me.broker).collect()
    }

    /// How many brokers are more than half of those with a replica.
    pub(crate) fn majority(&self) -> usize {
        self.record.as_ref().map_or(1, |(record, _)| record.brokers().len() / 2 + 1)
    }

    fn report_role(&mut self) {
        let role = match &self.state {
            State::Following(following) => following.role(),
            State::Halted(why) => Role::Halted(*why),
            State::Leading(leading) => leading.role(),
        };
        if role != self.role {
            self.role = role;
            self.effects.push(Effect::Role(role));
        }
    }

    pub(crate) fn following(&mut self) -> Option<&mut Following> {
        if let State::Following(following) = &mut self.state { Some(following) } else { None }
    }

    pub(crate) fn leading(&mut self) -> Option<&mut Leading> {
        if let State::Leading(leading) = &mut self.state { Some(leading) } else { None }
    }

    pub(crate) fn campaign(&mut self) -> Option<&mut Campaign> {
        self.following()?.campaign.as_mut()
    }
}
