//! A replica that leads: it sends records to the others, and commits what all of the in-sync set have.
//!
//! Invariants: something is committed once every replica of the in-sync set, and of the one that is asked for, has acknowledged
//! it in this epoch, the leader's own disk counted like another's (rule 2), and only together with the record that begins the
//! epoch (rule 5).
//!
//! A leader delivers while a majority of the brokers answers its beats, and a new one waits until no majority can
//! still answer those of the one before. That makes duplicates rare and has no part in what is committed.

use std::collections::BTreeMap;

use crate::state::{HandOver, Leading, Peer, Replica, State};
use crate::{BrokerId, Effect, Epoch, Epochs, Link, Message, Position, ReplicaId, ShardRecord};

impl Replica {
    /// Begins to lead an epoch that the record and the promise name.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        let Some(record) = self.record().filter(|record| record.epoch == epoch && record.leader == self.me) else {
            return self.ask_coordinator();
        };
        let now = self.now;
        let following = if let State::Following(following) = &self.state { Some(following) } else { None };
        let is_gone = following.is_some_and(|following| following.is_predecessor_gone);
        // A leader that was missed is silent already: nothing waits for it another time.
        let predecessor = following.and_then(|following| following.predecessor);
        let peer = |(&replica, &broker): (&ReplicaId, &BrokerId)| {
            let lost = self.links.get(&broker).filter(|(link, _)| *link != Link::Up).map(|&(_, since)| since);
            let heard = predecessor.filter(|(before, _)| *before == broker).map_or(now, |(_, heard)| heard);
            (replica != self.me.replica).then(|| (replica, Peer { lost, heard, ..Peer::of(broker, now) }))
        };
        let peers = record.replicas.iter().filter_map(peer).collect();
        let leading = Leading {
            epoch,
            start: None,
            peers,
            pending: None,
            sessions: BTreeMap::new(),
            last_beat: None,
            answered: BTreeMap::new(),
            alone_from: is_gone.then_some(now),
            delivers: false,
            hand_over: None,
        };
        self.state = State::Leading(Box::new(leading));
        if self.log.cutting.is_none() {
            self.effects.push(Effect::Begin(epoch));
        }
        self.beat();
    }

    pub(crate) fn take_appended(&mut self, end: Position) {
        let before = std::mem::replace(&mut self.log.end, end);
        let Some(leading) = self.leading() else { return };
        if leading.start.is_none() {
            leading.start = Some(end);
            let epoch = leading.epoch;
            self.log.epochs.begin(epoch, before);
        }
        self.replicate();
    }

    pub(crate) fn tick_leader(&mut self) {
        if self.is_stalled() {
            self.resign();
        }
        let (now, settings) = (self.now, self.settings);
        let Some(leading) = self.leading() else { return };
        for peer in leading.peers.values_mut() {
            if peer.sent > peer.acknowledged && now >= peer.moved + settings.ask_again_after {
                (peer.sent, peer.moved) = (peer.acknowledged, now);
            }
        }
        let within =
            |hand_over: HandOver| if hand_over.is_sent { settings.hand_over_within } else { settings.shrink_after };
        leading.hand_over.take_if(|hand_over| now >= hand_over.since + within(*hand_over));
        if leading.last_beat.is_none_or(|last| now >= last + settings.beat_every) {
            self.beat();
        }
        self.decide_delivery();
        self.change_membership();
        self.replicate();
    }

    fn beat(&mut self) {
        let (sent, high_watermark) = (self.now, self.log.committed);
        let Some(leading) = self.leading() else { return };
        leading.last_beat = Some(sent);
        let (epoch, sessions) = (leading.epoch, leading.sessions.clone());
        for broker in self.listeners() {
            let session = sessions.get(&broker).map_or(0, |&(session, _)| session);
            self.send(broker, Message::Beat { epoch, high_watermark, sent, session });
        }
    }

    pub(crate) fn receive_as_leader(&mut self, from: BrokerId, message: Message) {
        let Some(leading) = self.leading() else { return };
        match message {
            // No beat was sent later than the last one, whatever a broker says.
            Message::BeatAnswer { epoch, sent } if epoch == leading.epoch && leading.last_beat >= Some(sent) => {
                let last = leading.answered.entry(from).or_default();
                *last = sent.max(*last);
                self.hear(from);
                self.decide_delivery();
            }
            Message::Hello { epoch, replica, session, epochs, end } if epoch == leading.epoch => {
                self.hear(from);
                self.welcome(from, replica, session, &epochs, end);
            }
            Message::Acknowledge { epoch, replica, session, position } if epoch == leading.epoch => {
                self.hear(from);
                self.take_acknowledgement(replica, session, position);
            }
            _ => (),
        }
    }

    /// A broker has answered in this epoch.
    fn hear(&mut self, from: BrokerId) {
        let now = self.now;
        let Some(leading) = self.leading() else { return };
        for peer in leading.peers.values_mut().filter(|peer| peer.broker == from) {
            peer.heard = now;
        }
    }

    fn welcome(&mut self, from: BrokerId, replica: ReplicaId, session: u64, epochs: &Epochs, end: Position) {
        if !epochs.are_valid(end) || replica == self.me.replica || !self.is_known(from) {
            return;
        }
        let (now, high_watermark) = (self.now, self.log.committed);
        let equal_until = self.log.epochs.equal_until(self.log.end, epochs, end);
        // Until the epoch has begun, the log may still be cut. The follower asks again.
        let Some(leading) = self.leading().filter(|leading| leading.start.is_some()) else { return };
        let epoch = leading.epoch;
        leading.sessions.insert(from, (session, replica));
        let peer = leading.peers.entry(replica).or_insert_with(|| Peer::of(from, now));
        (peer.broker, peer.session, peer.is_streaming, peer.lost) = (from, session, false, None);
        self.send(from, Message::Welcome { epoch, session, equal_until, high_watermark });
    }

    fn take_acknowledgement(&mut self, replica: ReplicaId, session: u64, position: Position) {
        let (now, end) = (self.now, self.log.end);
        let Some(leading) = self.leading() else { return };
        let Some(peer) = leading.peers.get_mut(&replica).filter(|peer| peer.session == session) else { return };
        if position > end {
            return;
        }
        peer.lost = None;
        if !peer.is_streaming {
            (peer.is_streaming, peer.sent, peer.moved) = (true, position, now);
        }
        if position > peer.acknowledged {
            (peer.acknowledged, peer.moved) = (position, now);
        }
        if position >= peer.goal.0 {
            peer.caught_up = peer.goal.1;
            peer.goal = (end, now);
        }
        if position == end {
            peer.caught_up = now;
        }
        self.advance();
        self.replicate();
    }

    /// Has records sent to each peer that lacks some, within its window, those of one epoch at a time.
    fn replicate(&mut self) {
        let (end, window) = (self.log.end, self.settings.window);
        let State::Leading(leading) = &mut self.state else { return };
        let epoch = leading.epoch;
        for (&to, peer) in leading.peers.iter_mut().filter(|(_, peer)| peer.is_streaming && !peer.is_sending) {
            if peer.sent < end
                && peer.sent < peer.acknowledged + window
                && let Some((of, until)) = self.log.epochs.of(peer.sent, end)
            {
                peer.is_sending = true;
                self.effects.push(Effect::Replicate { to, broker: peer.broker, epoch, after: peer.sent, until, of });
            }
        }
    }

    pub(crate) fn take_sent(&mut self, to: ReplicaId, until: Position) {
        let Some(leading) = self.leading() else { return };
        if let Some(peer) = leading.peers.get_mut(&to) {
            peer.is_sending = false;
            peer.sent = peer.sent.max(until);
            self.replicate();
        }
    }

    /// The message that carries records which [`Effect::Replicate`] of this epoch asked for. `None` when this replica does not
    /// lead it any more: records are read some time after they were asked for, and the log may be that of another leader by then.
    #[must_use]
    pub fn append_message(&self, epoch: Epoch, after: Position, until: Position, of: Epoch) -> Option<Message> {
        let State::Leading(leading) = &self.state else { return None };
        let high_watermark = self.log.committed;
        (leading.epoch == epoch).then_some(Message::Append { epoch, after, until, of, high_watermark })
    }

    /// Commits what all that count have on their disks.
    pub(crate) fn advance(&mut self) {
        let (synced, me) = (self.log.synced, self.me.replica);
        let before = self.log.committed;
        let Some(record) = self.record.as_ref().map(|(record, _)| record.clone()) else { return };
        let Some(leading) = self.leading() else { return };
        let Some(start) = leading.start else { return };
        if record.in_sync.len() < record.min_in_sync {
            return;
        }
        let asked_for = leading.pending.iter().flat_map(|pending| &pending.wanted.in_sync);
        let others = record.in_sync.iter().chain(asked_for).filter(|&&replica| replica != me);
        let reached = others.map(|replica| leading.peers.get(replica).map_or(0, |peer| peer.acknowledged)).min();
        let reached = reached.map_or(synced, |reached| reached.min(synced));
        if reached >= start {
            self.commit(reached);
        }
        // Otherwise the next record tells the followers.
        let is_all = self.log.committed > before && self.log.committed == self.log.end;
        if is_all && self.settings.tells_at_once {
            self.beat();
        }
        self.go_on_handing_over();
    }

    pub(crate) fn hand_over(&mut self, to: ReplicaId) {
        let (since, me, end) = (self.now, self.me.replica, self.log.end);
        let is_member = self.record().is_some_and(|record| record.in_sync.contains(&to));
        let Some(leading) = self.leading() else { return };
        // One that lacks records and is not heard must not keep another one from taking over.
        let is_free = leading.hand_over.is_none_or(|hand_over| !hand_over.is_sent && hand_over.to != to);
        if is_member && to != me && is_free {
            leading.hand_over = Some(HandOver { to, since, end, is_sent: false });
            self.go_on_handing_over();
        }
    }

    /// Leaves an epoch whose records the disk does not take. The in-sync replica with the most records is asked to lead: it has
    /// all that is committed. Without one that is connected this replica goes on.
    fn resign(&mut self) {
        let Some(record) = self.record().cloned() else { return };
        let Some(leading) = self.leading() else { return };
        let peers =
            leading.peers.iter().filter(|(replica, peer)| record.in_sync.contains(replica) && peer.lost.is_none());
        let Some((_, heir)) = peers.max_by_key(|(_, peer)| peer.acknowledged) else { return };
        let (epoch, to) = (leading.epoch, heir.broker);
        self.send(to, Message::TakeOver { epoch });
        self.step_down();
        // It agrees when another one campaigns.
        if let Some(following) = self.following() {
            following.heard = None;
        }
    }

    /// Sends the chosen replica the request to take over, once everything is committed that was there when the hand-over began, and that
    /// replica has it. What was appended since may be cut: it is not committed, and its publishers hear that its outcome is unknown. This
    /// replica goes on committing it until the other one promises its own epoch.
    fn go_on_handing_over(&mut self) {
        let (now, committed) = (self.now, self.log.committed);
        let Some(leading) = self.leading() else { return };
        let epoch = leading.epoch;
        let Some(hand_over) = leading.hand_over.as_mut().filter(|hand_over| !hand_over.is_sent) else { return };
        let Some(peer) = leading.peers.get(&hand_over.to) else { return };
        if committed >= hand_over.end && peer.acknowledged >= hand_over.end {
            (hand_over.is_sent, hand_over.since) = (true, now);
            let to = peer.broker;
            self.send(to, Message::TakeOver { epoch });
        }
    }

    fn decide_delivery(&mut self) {
        let (now, me, majority, within) = (self.now, self.me, self.majority(), self.settings.deliver_within);
        let brokers = self.record().map(ShardRecord::brokers).unwrap_or_default();
        let is_alone = self.record().is_some_and(|record| record.in_sync.len() == 1);
        let committed = self.log.committed;
        let Some(leading) = self.leading() else { return };
        // More than half, also where half of them is no majority: the leader before may have known one broker more, or one less, and
        // any majority of those has a broker of this one.
        let in_epoch = 1 + leading.answered.keys().filter(|broker| brokers.contains(broker)).count();
        if leading.alone_from.is_none() && in_epoch >= majority {
            leading.alone_from = Some(now + within);
        }
        let answers = |broker: &&BrokerId| {
            **broker == me.broker || leading.answered.get(*broker).is_some_and(|&sent| now < sent + within)
        };
        let is_heard = brokers.iter().filter(answers).count() >= majority || (is_alone && leading.pending.is_none());
        let has_begun = leading.start.is_some_and(|start| committed >= start);
        leading.delivers = has_begun && is_heard && leading.alone_from.is_some_and(|from| now >= from);
    }
}
