//! The durability that a confirm promises, and who chooses it.

/// Durability, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In the page cache: survives the death of the process.
    Os,
    /// Synced: survives a power failure of the machine.
    Disk,
}

/// Durability that queues require. Of several queues the strictest choices count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLevels {
    /// For messages of publishers that choose none.
    pub chosen: Option<Level>,
    /// The minimum, whatever the publisher chose.
    pub least: Option<Level>,
}

impl QueueLevels {
    #[must_use]
    pub fn stricter(self, other: QueueLevels) -> QueueLevels {
        QueueLevels { chosen: self.chosen.max(other.chosen), least: self.least.max(other.least) }
    }
}

impl Level {
    /// The durability of one message: the publisher's choice, else the strictest choice of its queues, else by its
    /// delivery mode; but never below the minimum of these queues.
    #[must_use]
    pub fn of(publisher: Option<Level>, queues: QueueLevels, persistent: bool) -> Level {
        let chosen = publisher.or(queues.chosen).unwrap_or(if persistent { Level::Disk } else { Level::Os });
        queues.least.map_or(chosen, |least| chosen.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, QueueLevels};

    #[test]
    fn the_publisher_chooses_before_the_queue_and_the_queue_before_the_message() {
        let asks = |chosen| QueueLevels { chosen, least: None };
        assert_eq!(Level::of(Some(Level::Os), asks(Some(Level::Disk)), true), Level::Os);
        assert_eq!(Level::of(None, asks(Some(Level::Os)), true), Level::Os);
        assert_eq!(Level::of(None, asks(None), true), Level::Disk);
        assert_eq!(Level::of(None, asks(None), false), Level::Os);
    }

    #[test]
    fn nothing_undercuts_the_least_level_of_a_queue() {
        let least = |level| QueueLevels { chosen: Some(Level::Os), least: Some(level) };
        assert_eq!(Level::of(Some(Level::Os), least(Level::Disk), false), Level::Disk);
        assert_eq!(Level::of(None, least(Level::Disk), false), Level::Disk);
        assert_eq!(Level::of(Some(Level::Disk), least(Level::Os), false), Level::Disk);
        assert_eq!(Level::of(Some(Level::Os), least(Level::Os).stricter(least(Level::Disk)), false), Level::Disk);
    }
}
