//! The names of queues that were deleted lately, for errors about them: who had such a queue knows its name and no number.

use std::collections::VecDeque;
use std::fmt;

use penstock_queue::QueueId;

/// So many are remembered of each log.
const GONE_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Gone {
    names: VecDeque<(QueueId, String)>,
}

impl Gone {
    pub fn add(&mut self, id: QueueId, name: &str) {
        if self.names.len() >= GONE_MAX {
            self.names.pop_front();
        }
        self.names.push_back((id, name.to_owned()));
    }

    /// How an error names a queue that the shard does not have.
    pub fn absent(&self, id: QueueId, shard: &str) -> Absent {
        let name = self.names.iter().rev().find(|(gone, _)| *gone == id).map(|(_, name)| name.clone());
        Absent { id, shard: shard.to_owned(), name }
    }
}

/// Where a queue is not, and its name if it was deleted lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    pub id: QueueId,
    pub shard: String,
    pub name: Option<String>,
}

impl fmt::Display for Absent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(out, "no queue '{name}' in vhost '{}'", self.shard),
            None => write!(out, "queue {} is not in shard '{}'", self.id.0, self.shard),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_queues_that_were_deleted_have_names() {
        let mut gone = Gone::default();
        (1..=300).for_each(|number| gone.add(QueueId(number), &format!("q{number}")));

        assert_eq!(gone.absent(QueueId(300), "/").to_string(), "no queue 'q300' in vhost '/'");
        assert_eq!(gone.absent(QueueId(45), "/").to_string(), "no queue 'q45' in vhost '/'");
        assert_eq!(gone.absent(QueueId(44), "/").to_string(), "queue 44 is not in shard '/'");
    }
}
