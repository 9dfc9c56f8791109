//! What a confirm promises, and who chooses it.

/// The levels of durability, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In the page cache: survives the death of the process.
    Os,
    /// Synced: survives power loss of the node.
    Disk,
}

impl Level {
    /// The level of one message: what the publisher chose, else the strictest choice of the queues it went to, else by its
    /// delivery mode.
    #[must_use]
    pub fn of(publisher: Option<Level>, queues: Option<Level>, persistent: bool) -> Level {
        publisher.or(queues).unwrap_or(if persistent { Level::Disk } else { Level::Os })
    }
}

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn the_publisher_chooses_before_the_queue_and_the_queue_before_the_message() {
        assert_eq!(Level::of(Some(Level::Os), Some(Level::Disk), true), Level::Os);
        assert_eq!(Level::of(None, Some(Level::Os), true), Level::Os);
        assert_eq!(Level::of(None, None, true), Level::Disk);
        assert_eq!(Level::of(None, None, false), Level::Os);
    }
}
