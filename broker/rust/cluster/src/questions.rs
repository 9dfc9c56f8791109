//! Questions to the coordinator, in the order in which they were asked. Whoever carries them out speaks to Kubernetes, etcd or a directory;
//! an answer that never comes is asked for again by the replica.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use penstock_replica::{ChangeId, ReadId, ShardRecord, Version};

use crate::lock::lock;

/// The id that the logs of all replicas of a shard have.
pub type ShardId = [u8; 16];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub shard: ShardId,
    pub kind: QuestionKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionKind {
    /// The shard's record, past all caches.
    Read(ReadId),
    /// Replace the record if it has the version `base`.
    Change { change: ChangeId, base: Version, record: ShardRecord },
}

pub(crate) struct Questions {
    asked: Mutex<Receiver<Question>>,
}

#[derive(Clone)]
pub(crate) struct Asking(Sender<Question>);

impl Questions {
    pub fn new() -> (Asking, Self) {
        let (sender, receiver) = channel();
        (Asking(sender), Self { asked: Mutex::new(receiver) })
    }

    /// The next question; none if there is none within this time.
    pub fn next(&self, within: Duration) -> Option<Question> {
        lock(&self.asked).recv_timeout(within).ok()
    }
}

impl Asking {
    pub fn ask(&self, question: Question) {
        // It fails only while the node ends, when no question is taken any more.
        let _ = self.0.send(question);
    }
}
