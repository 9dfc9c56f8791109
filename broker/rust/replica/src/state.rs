//! Everything that a replica knows; the other modules say how it changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    BrokerId, ChangeId, Effect, Epoch, Epochs, Halt, Heard, Leader, Link, Millis, Position, ReadId, ReplicaId, Role,
    Settings, ShardRecord, Version,
};

/// A replica's state on the disk, from which a start goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    pub promised: Epoch,
    pub epochs: Epochs,
    /// The log's end. Everything below is on the disk when a process starts.
    pub end: Position,
    /// A lower bound of the high watermark.
    pub high_watermark: Position,
}

/// The log as this process knows it.
#[derive(Debug)]
pub(crate) struct Log {
    pub epochs: Epochs,
    pub end: Position,
    pub synced: Position,
    /// Everything below is known to be committed.
    pub committed: Position,
    /// The log is being cut to this position.
    pub cutting: Option<Position>,
    /// How far the disk is while it is behind the log's end, and since when it is there.
    pub behind: Option<(Position, Millis)>,
}

#[derive(Debug)]
pub(crate) enum State {
    Following(Box<Following>),
    Leading(Box<Leading>),
    Halted(Halt),
}

/// A question to the coordinator that is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub read: ReadId,
    pub at: Millis,
    /// The promise at that time: an answer with an older epoch proves that the coordinator went back.
    pub promised: Epoch,
}

#[derive(Debug)]
pub struct Replica {
    pub(crate) me: Leader,
    pub(crate) settings: Settings,
    pub(crate) now: Millis,
    pub(crate) log: Log,
    pub(crate) promised: Epoch,
    /// A promise that is being stored, and the broker that leads that epoch.
    pub(crate) promising: Option<(Epoch, BrokerId)>,
    pub(crate) record: Option<(ShardRecord, Version)>,
    pub(crate) links: BTreeMap<BrokerId, (Link, Millis)>,
    pub(crate) ended_sessions: BTreeSet<BrokerId>,
    pub(crate) state: State,
    pub(crate) asked: Option<Asked>,
    /// The number of its last question or request: see [`Replica::next_number`].
    pub(crate) number: u64,
    pub(crate) effects: Vec<Effect>,
    pub(crate) role: Role,
    /// Others are to lead, as far as they do so soon.
    pub(crate) yields: bool,
    /// The brokers that are to have a replica; none where that is not known, and those with one keep it.
    pub(crate) placed: BTreeSet<BrokerId>,
}

#[derive(Debug)]
pub(crate) struct Following {
    /// The leader's epoch; 0 without a leader.
    pub epoch: Epoch,
    pub leader: Option<BrokerId>,
    /// When the leader was last heard; `None` after its connection was refused.
    pub heard: Option<Millis>,
    /// When the connection was refused first.
    pub gone_since: Millis,
    /// It does not campaign before.
    pub waits_until: Millis,
    /// Since when it misses its leader and leaves it to others to campaign.
    pub yields_since: Option<Millis>,
    pub session: u64,
    pub stage: FollowingStage,
    /// The log equals the leader's up to here.
    pub verified: Position,
    pub campaign: Option<Campaign>,
    /// The leader before handed over, or its process is gone, so that it delivers nothing any more.
    pub is_predecessor_gone: bool,
    /// The broker that led before this replica was elected, and when it was last heard.
    pub predecessor: Option<(BrokerId, Millis)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowingStage {
    /// Has to ask where the logs agree, or asked at this time.
    Comparing {
        asked: Option<Millis>,
    },
    Cutting,
    Streaming,
}

impl Following {
    pub fn role(&self) -> Role {
        Role::Follower { of: self.leader.map(|leader| Heard { epoch: self.epoch, leader }) }
    }

    pub fn of_none(now: Millis) -> Following {
        Following {
            epoch: 0,
            leader: None,
            heard: Some(now),
            gone_since: 0,
            waits_until: 0,
            yields_since: None,
            session: 0,
            stage: FollowingStage::Comparing { asked: None },
            verified: 0,
            campaign: None,
            is_predecessor_gone: false,
            predecessor: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Campaign {
    pub asked: Millis,
    /// The number of its question to the other brokers.
    pub question: u64,
    /// The newest epoch that was known to have a leader, which is missed.
    pub missed: Epoch,
    pub agreed: BTreeSet<BrokerId>,
    pub stage: CampaignStage,
    /// The leader hands over, so that being heard does not end the campaign.
    pub is_asked_for: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CampaignStage {
    /// Asks the other brokers whether they miss the leader, too.
    Asking,
    /// Reads the record that it is going to change.
    Reading,
    Changing(ChangeId, Version),
}

#[derive(Debug)]
pub(crate) struct Leading {
    pub epoch: Epoch,
    /// Where the record that begins the epoch ends; `None` until it is appended.
    pub start: Option<Position>,
    pub peers: BTreeMap<ReplicaId, Peer>,
    pub pending: Option<Pending>,
    /// The last [`Message::Hello`] of each broker: its session and its replica.
    pub sessions: BTreeMap<BrokerId, (u64, ReplicaId)>,
    pub last_beat: Option<Millis>,
    /// When the last beat was sent that a broker answered.
    pub answered: BTreeMap<BrokerId, Millis>,
    /// From when on no other leader can be delivering.
    pub alone_from: Option<Millis>,
    pub delivers: bool,
    pub hand_over: Option<HandOver>,
}

/// Another replica, as its leader sees it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub broker: BrokerId,
    pub session: u64,
    pub acknowledged: Position,
    pub sent: Position,
    pub is_streaming: bool,
    pub is_sending: bool,
    /// The leader's end at a time, and that time: once it is acknowledged, the peer was caught up then.
    pub goal: (Position, Millis),
    pub caught_up: Millis,
    pub moved: Millis,
    /// When it last answered a beat or records of this epoch.
    pub heard: Millis,
    pub lost: Option<Millis>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HandOver {
    pub to: ReplicaId,
    pub since: Millis,
    /// Where the log ended at the beginning. It may go on growing, because the queues of a shard do not stop taking publishes.
    pub end: Position,
    pub is_sent: bool,
}

impl Leading {
    pub fn role(&self) -> Role {
        let appends = self.start.is_some() && self.hand_over.is_none_or(|hand_over| !hand_over.is_sent);
        Role::Leader { epoch: self.epoch, appends, delivers: self.delivers && appends }
    }

    pub fn lose_link(&mut self, broker: BrokerId, now: Millis) {
        for peer in self.peers.values_mut().filter(|peer| peer.broker == broker) {
            peer.is_streaming = false;
            peer.lost = peer.lost.or(Some(now));
        }
    }
}

impl Peer {
    pub fn of(broker: BrokerId, now: Millis) -> Peer {
        Peer {
            broker,
            session: 0,
            acknowledged: 0,
            sent: 0,
            is_streaming: false,
            is_sending: false,
            goal: (0, now),
            caught_up: now,
            moved: now,
            heard: now,
            lost: None,
        }
    }

    /// Whether it has answered nothing for the time after which a leader is suspected, too.
    pub fn is_silent(&self, now: Millis, within: Millis) -> bool {
        now >= self.heard + within
    }
}

/// A change of the record that a leader asked for.
#[derive(Debug)]
pub(crate) struct Pending {
    pub change: ChangeId,
    pub base: Version,
    pub wanted: ShardRecord,
    pub is_unknown: bool,
}
