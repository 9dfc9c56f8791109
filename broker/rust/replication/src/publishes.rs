//! Publishes that wait for their outcome.
//!
//! Invariants: they end in the order in which they were appended, each once. One is committed when the high watermark has reached
//! its end while its leader leads; a leader that stops leading does not know about the others: their records may stay or go.

use std::collections::VecDeque;

use penstock_replica::Position;

/// The caller's name for a publish.
pub type Token = u64;

/// How a publish ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// All replicas that are in sync have it on their disks.
    Committed,
    /// The replica leads no longer. The publish may be committed by the next leader, or not.
    Unknown,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Publishes {
    waiting: VecDeque<(Position, Token)>,
}

impl Publishes {
    /// A publish whose records end there.
    pub fn wait(&mut self, end: Position, token: Token) {
        self.waiting.push_back((end, token));
    }

    /// Takes those that are committed.
    pub fn committed(&mut self, below: Position) -> impl Iterator<Item = Token> {
        let count = self.waiting.partition_point(|&(end, _)| end <= below);
        self.waiting.drain(..count).map(|(_, token)| token)
    }

    /// Takes all.
    pub fn unknown(&mut self) -> impl Iterator<Item = Token> {
        self.waiting.drain(..).map(|(_, token)| token)
    }
}
