//! A term: the time in which this broker leads a replicated shard, and what the shard's queues know of it.
//!
//! The log of a replicated shard is with its replica while another broker leads. While this one leads, the log is in a shard that was
//! opened for the term, with queues as after a start.
//!
//! Invariants: messages that are not committed are not delivered, as the next leader may not have them; a queue that has some wakes its
//! consumers when more is committed, and not before.

use std::fmt;
use std::sync::Arc;

use penstock_log::{FoldState, Log, Position};
use penstock_queue::QueueId;
use rustc_hash::FxHashMap;

/// The replica whose log a shard has.
pub trait Replication: fmt::Debug + Send + Sync {
    /// Something was appended: has it synced and sent to the other replicas soon. It is called without the shard's lock, often, and returns
    /// at once.
    fn appended(&self);
}

/// A replicated log for [`crate::Engine::lead`], while its replica leads.
#[derive(Debug)]
pub struct Led {
    pub log: Log,
    /// The state of the queues at the log's end.
    pub state: FoldState,
    /// When the last message was stored.
    pub stored_at_ms: u64,
    pub replication: Arc<dyn Replication>,
}

/// Messages that are tried again after a commit, as their records could not be read before.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    Letters,
    /// Messages that exchanges keep, and that are to be copied.
    Kept,
}

/// Messages of a queue that are not committed.
#[derive(Clone, Copy, Debug)]
struct Uncommitted {
    /// Once everything below it is committed, some of them may be.
    first: Position,
    /// The end of the log when the last of them was found.
    last: Position,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Term {
    replication: Arc<dyn Replication>,
    /// How far the replica was told of the log.
    told: Position,
    /// Whether messages may be delivered: not before the term's first record is committed, nor while other brokers are not heard.
    delivers: bool,
    uncommitted: FxHashMap<QueueId, Uncommitted>,
    /// Whether messages wait for the next commit, for each [`Waiting`].
    waiting: [bool; 2],
    /// Another broker leads, or is about to.
    is_over: bool,
}

impl Term {
    pub fn new(replication: Arc<dyn Replication>, end: Position) -> Term {
        let (uncommitted, waiting) = (FxHashMap::default(), [false; 2]);
        Term { replication, told: end, delivers: false, uncommitted, waiting, is_over: false }
    }

    /// The replica, if the log has grown since the last call.
    pub fn news(&mut self, end: Position) -> Option<Arc<dyn Replication>> {
        let is_news = end > self.told && !self.is_over;
        self.told = end;
        is_news.then(|| Arc::clone(&self.replication))
    }

    pub fn delivers(&self) -> bool {
        self.delivers
    }

    /// Returns whether that is new.
    pub fn set_delivers(&mut self, delivers: bool) -> bool {
        let delivers = delivers && !self.is_over;
        std::mem::replace(&mut self.delivers, delivers) != delivers
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    pub fn end(&mut self) {
        (self.is_over, self.delivers) = (true, false);
        self.uncommitted.clear();
    }

    /// Whether consumers of a queue are woken by messages that become ready.
    pub fn wakes(&self, queue: QueueId) -> bool {
        self.delivers && !self.uncommitted.contains_key(&queue)
    }

    /// Has a queue with a new message wake its consumers once everything below a position is committed.
    pub fn hold_back(&mut self, queue: QueueId, end: Position) {
        self.uncommitted.entry(queue).or_insert(Uncommitted { first: end, last: end }).last = end;
    }

    /// The same for a queue whose messages were stored earlier: each commit may be that of one of them.
    pub fn hold_back_some(&mut self, queue: QueueId, end: Position) {
        self.uncommitted.entry(queue).or_insert(Uncommitted { first: Position(0), last: end }).last = end;
    }

    pub fn wait_for_next_commit(&mut self, what: Waiting) {
        self.waiting[what as usize] = true;
    }

    /// Whether some waited for the commit that there was.
    pub fn waited_for_commit(&mut self, what: Waiting) -> bool {
        std::mem::take(&mut self.waiting[what as usize])
    }

    /// The queues that may have more committed messages now. One commit of many queues' messages is one turn for each of them.
    pub fn committed(&mut self, below: Position) -> Vec<QueueId> {
        let mut queues = Vec::new();
        self.uncommitted.retain(|&queue, waiting| {
            if waiting.first > below {
                return true;
            }
            queues.push(queue);
            // Where the others end is not kept: the next commit may be theirs.
            waiting.first = Position(0);
            waiting.last > below
        });
        queues
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing;

    impl Replication for Nothing {
        fn appended(&self) {}
    }

    #[test]
    fn a_queue_wakes_its_consumers_again_once_all_its_messages_are_committed() {
        let (queue, other) = (QueueId(1), QueueId(2));
        let mut term = Term::new(Arc::new(Nothing), Position(10));
        assert!(!term.wakes(queue), "the term has not begun");
        assert!(term.set_delivers(true) && !term.set_delivers(true));

        term.hold_back(queue, Position(20));
        term.hold_back(queue, Position(30));

        assert!(!term.wakes(queue) && term.wakes(other));
        assert_eq!((term.committed(Position(20)), term.wakes(queue)), (vec![queue], false));
        assert_eq!((term.committed(Position(30)), term.wakes(queue)), (vec![queue], true));
        assert!(term.committed(Position(40)).is_empty());
    }

    #[test]
    fn a_commit_wakes_no_queue_of_which_it_commits_nothing() {
        let (early, late) = (QueueId(1), QueueId(2));
        let mut term = Term::new(Arc::new(Nothing), Position(10));
        term.set_delivers(true);
        term.hold_back(early, Position(20));
        term.hold_back(late, Position(30));

        assert_eq!(term.committed(Position(20)), vec![early]);
        assert_eq!(term.committed(Position(30)), vec![late]);
    }

    #[test]
    fn a_queue_with_messages_of_unknown_places_is_woken_by_each_commit() {
        let queue = QueueId(1);
        let mut term = Term::new(Arc::new(Nothing), Position(10));
        term.set_delivers(true);
        term.hold_back_some(queue, Position(30));

        assert_eq!(term.committed(Position(15)), vec![queue]);
        assert_eq!(term.committed(Position(30)), vec![queue]);
        assert!(term.committed(Position(40)).is_empty());
    }

    #[test]
    fn the_replica_hears_once_of_what_was_appended_and_of_nothing_after_the_end() {
        let mut term = Term::new(Arc::new(Nothing), Position(10));
        assert!(term.news(Position(10)).is_none());
        assert!(term.news(Position(11)).is_some());
        assert!(term.news(Position(11)).is_none());

        term.end();

        assert!(term.news(Position(12)).is_none() && !term.delivers());
    }
}
