//! A replica that follows a leader: it cuts what the leader does not have, takes records, and acknowledges them.
//!
//! Invariants: it cuts where the epochs of both logs part, never at the high watermark, and never below what it knows to be
//! committed (rule 6); it acknowledges what it has compared with this leader's log in this epoch and has on its disk, never
//! the mere length of its log (rule 7).

use crate::state::{Following, FollowingStage, Replica, State};
use crate::{BrokerId, Effect, Epoch, Halt, Link, Message, Position};

impl Replica {
    /// Follows the leader of an epoch that is promised.
    pub(crate) fn follow(&mut self, epoch: Epoch, leader: BrokerId) {
        let following = Following { epoch, leader: Some(leader), ..Following::of_none(self.now) };
        self.state = State::Following(Box::new(following));
        self.compare();
    }

    pub(crate) fn receive_as_follower(&mut self, from: BrokerId, message: Message) {
        if let Some(epoch) = message.leader_epoch() {
            let (now, is_elected) = (self.now, self.promising.is_some());
            let Some(following) = self.following() else { return };
            if following.epoch < epoch {
                return self.follow(epoch, from);
            }
            following.heard = Some(now);
            // A leader that hands over goes on sending what comes meanwhile.
            following.campaign.take_if(|campaign| !campaign.is_asked_for);
            // One whose hand-over came to nothing delivers again.
            following.is_predecessor_gone &= is_elected || following.campaign.is_some();
        }
        match message {
            Message::Beat { epoch, high_watermark, sent, session } => {
                self.send(from, Message::BeatAnswer { epoch, sent });
                self.learn_committed(high_watermark);
                self.stay_in_session(session);
            }
            Message::Welcome { session, equal_until, high_watermark, .. } => {
                self.take_welcome(session, equal_until);
                self.learn_committed(high_watermark);
            }
            Message::Append { after, until, of, high_watermark, .. } => {
                self.take_append(after, until, of);
                self.learn_committed(high_watermark);
            }
            Message::TakeOver { .. } => {
                self.campaign_at_once();
                if let Some(following) = self.following() {
                    following.is_predecessor_gone = true;
                    following.campaign.iter_mut().for_each(|campaign| campaign.is_asked_for = true);
                }
            }
            _ => (),
        }
    }

    /// Asks the leader where the logs agree, if that is not known and was not asked a moment ago.
    fn compare(&mut self) {
        if self.log.cutting.is_some() {
            return;
        }
        let (now, again) = (self.now, self.settings.ask_again_after);
        let Some(following) = self.following() else { return };
        let FollowingStage::Comparing { asked } = following.stage else { return };
        let Some(leader) = following.leader else { return };
        if asked.is_some_and(|asked| now < asked + again) {
            return;
        }
        let epoch = following.epoch;
        let session = self.next_number();
        if let Some(following) = self.following() {
            (following.session, following.stage) = (session, FollowingStage::Comparing { asked: Some(now) });
        }
        let (epochs, end) = (self.log.epochs.clone(), self.log.end);
        self.send(leader, Message::Hello { epoch, replica: self.me.replica, session, epochs, end });
    }

    /// Compares the logs again if the leader has another session; else repeats what may have been lost.
    fn stay_in_session(&mut self, session: u64) {
        let Some(following) = self.following() else { return };
        if following.stage == FollowingStage::Streaming && following.session != session {
            following.stage = FollowingStage::Comparing { asked: None };
        }
        self.acknowledge();
        self.compare();
    }

    /// Takes the answer to the last question, once: an earlier answer may be about records that were cut, and others have
    /// been acknowledged in their place since.
    fn take_welcome(&mut self, session: u64, equal_until: Position) {
        let (end, committed) = (self.log.end, self.log.committed);
        let Some(following) = self.following() else { return };
        if following.session != session
            || !matches!(following.stage, FollowingStage::Comparing { asked: Some(_) })
            || equal_until > end
        {
            return;
        }
        if equal_until < committed {
            return self.halt(Halt::CommittedWouldBeCut);
        }
        following.stage = FollowingStage::Cutting;
        following.verified = equal_until;
        if equal_until == end {
            self.stream();
        } else {
            self.log.cutting = Some(equal_until);
            self.effects.push(Effect::Truncate(equal_until));
        }
    }

    pub(crate) fn take_truncated(&mut self, position: Position) {
        if self.log.cutting.take_if(|cutting| *cutting == position).is_none() {
            return;
        }
        let log = &mut self.log;
        log.epochs.cut(position);
        (log.end, log.synced) = (position, log.synced.min(position));
        match &self.state {
            State::Following(following) if following.stage == FollowingStage::Cutting => self.stream(),
            // Another leader is followed by now, or this replica leads.
            State::Following(_) => self.compare(),
            State::Leading(leading) => self.effects.push(Effect::Begin(leading.epoch)),
            State::Halted(_) => (),
        }
    }

    fn stream(&mut self) {
        if let Some(following) = self.following() {
            following.stage = FollowingStage::Streaming;
        }
        self.acknowledge();
    }

    fn take_append(&mut self, after: Position, until: Position, of: Epoch) {
        let Some(following) = self.following() else { return };
        if following.stage != FollowingStage::Streaming || until <= following.verified {
            return;
        }
        if after != following.verified {
            // Some records are missing in between, so the logs are compared again.
            following.stage = FollowingStage::Comparing { asked: None };
            return self.compare();
        }
        following.verified = until;
        let begins = (of > self.log.epochs.newest()).then_some(of);
        if let Some(epoch) = begins {
            self.log.epochs.begin(epoch, after);
        }
        self.log.end = until;
        self.effects.push(Effect::Write { after, until, begins });
    }

    fn learn_committed(&mut self, high_watermark: Position) {
        let Some(following) = self.following() else { return };
        if following.stage == FollowingStage::Streaming {
            let known = high_watermark.min(following.verified);
            self.commit(known);
        }
    }

    pub(crate) fn acknowledge(&mut self) {
        let synced = self.log.synced;
        let replica = self.me.replica;
        let Some(following) = self.following() else { return };
        let Some(leader) = following.leader else { return };
        if following.stage == FollowingStage::Streaming {
            let (epoch, session, position) = (following.epoch, following.session, following.verified.min(synced));
            self.send(leader, Message::Acknowledge { epoch, replica, session, position });
        }
    }

    /// A connection broke: records on their way may be lost.
    pub(crate) fn lose_link(&mut self, broker: BrokerId) {
        let now = self.now;
        let is_refused = self.links.get(&broker).is_some_and(|&(link, _)| link == Link::Refused);
        if let Some(leading) = self.leading() {
            return leading.lose_link(broker, now);
        }
        let Some(following) = self.following().filter(|following| following.leader == Some(broker)) else { return };
        if following.stage == FollowingStage::Streaming {
            following.stage = FollowingStage::Comparing { asked: None };
        }
        if is_refused && following.heard.take().is_some() {
            following.gone_since = now;
        }
    }
}
