//! The most recently read segments. The pages of all others are released.
//!
//! Invariants: this list keeps nothing alive, and a release does not affect readers: the pages come from the page cache
//! again.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::directory::{Directory, Lookup};
use crate::segment::Segment;

/// The most segments that wait for a release; further ones are released at once.
const PASSED_MAX: usize = 16;

/// A segment and its directory, when it has one.
#[derive(Clone, Debug)]
struct Read {
    segment: Weak<Segment>,
    directory: Option<Weak<Directory>>,
    bytes: u64,
}

impl Read {
    fn is_of(&self, segment: &Arc<Segment>) -> bool {
        std::ptr::eq(self.segment.as_ptr(), Arc::as_ptr(segment))
    }

    fn release(&self) {
        if let Some(segment) = self.segment.upgrade() {
            segment.release();
        }
        if let Some(directory) = self.directory.as_ref().and_then(Weak::upgrade) {
            directory.release();
        }
    }
}

/// Segments that readers have left. Dropping it takes their pages out of this process's memory, which takes a while: do
/// it without the log's lock.
#[derive(Debug, Default)]
#[must_use]
pub struct Passed(Vec<Read>);

impl Drop for Passed {
    fn drop(&mut self) {
        self.0.iter().for_each(Read::release);
    }
}

/// The recently read segments, the last one first; see the module.
#[derive(Debug)]
pub(super) struct Recent {
    read: VecDeque<Read>,
    bytes_max: u64,
    passed: Passed,
}

impl Recent {
    /// Remembers segments of so many bytes together, and always one.
    pub(super) fn new(bytes_max: u64) -> Recent {
        Recent { read: VecDeque::new(), bytes_max, passed: Passed::default() }
    }

    pub(super) fn note(&mut self, segment: &Arc<Segment>, lookup: Option<&Lookup>) {
        if self.read.front().is_some_and(|read| read.is_of(segment)) {
            return;
        }
        self.read.retain(|read| !read.is_of(segment) && read.segment.strong_count() > 0);
        let directory = match lookup {
            Some(Lookup::File(directory)) => Some(Arc::downgrade(directory)),
            _ => None,
        };
        self.read.push_front(Read { segment: Arc::downgrade(segment), directory, bytes: segment.bytes() });
        let mut bytes: u64 = self.read.iter().map(|read| read.bytes).sum();
        while bytes > self.bytes_max
            && self.read.len() > 1
            && let Some(passed) = self.read.pop_back()
        {
            bytes -= passed.bytes;
            self.passed.0.push(passed);
        }
        if self.passed.0.len() > PASSED_MAX {
            drop(self.take_passed());
        }
    }

    pub(super) fn take_passed(&mut self) -> Passed {
        std::mem::take(&mut self.passed)
    }
}
