//! The versions that a cluster uses while its brokers are upgraded one after the other.
//!
//! Invariant: every broker of the cluster knows what is used. One that is not connected counts as it was when it was last heard, and one
//! that this process has not heard yet as one that knows the oldest versions alone.

use crate::settings::Versions;

/// The oldest format of the log that clusters write.
pub const FORMAT_OLDEST: u16 = 2;

/// The newest versions that all brokers of a cluster know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// A frame or a command that needs a newer version of the protocol is neither sent nor written to the log of the metadata.
    pub protocol: u16,
    /// Logs of a newer format are not written.
    pub format: u16,
}

/// Decides what a broker uses: from its own versions, and those of the last greeting of each other broker of the cluster, `None` where
/// none came yet.
#[must_use]
pub fn used(ours: Versions, others: impl IntoIterator<Item = Option<Versions>>) -> Used {
    let newest = |of: Versions| Used { protocol: of.protocol_highest, format: of.format };
    let oldest = Used { protocol: ours.protocol_lowest, format: FORMAT_OLDEST };
    others.into_iter().fold(newest(ours), |used, other| {
        let theirs = other.map_or(oldest, newest);
        Used { protocol: used.protocol.min(theirs.protocol), format: used.format.min(theirs.format) }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: Versions = Versions { protocol_lowest: 1, protocol_highest: 1, format: 2 };
    const TWO: Versions = Versions { protocol_lowest: 1, protocol_highest: 2, format: 3 };
    const OLD: Used = Used { protocol: 1, format: 2 };
    const NEW: Used = Used { protocol: 2, format: 3 };

    #[test]
    fn a_new_version_is_used_once_every_broker_has_said_that_it_knows_it() {
        assert_eq!(used(TWO, [Some(ONE), Some(ONE)]), OLD);
        assert_eq!(used(TWO, [Some(TWO), Some(ONE)]), OLD);
        assert_eq!(used(TWO, [Some(TWO), Some(TWO)]), NEW);
        assert_eq!(used(TWO, []), NEW, "alone");
    }

    #[test]
    fn a_broker_that_was_not_heard_counts_as_an_old_one() {
        assert_eq!(used(TWO, [Some(TWO), None]), OLD);
    }

    #[test]
    fn an_old_broker_uses_what_it_knows() {
        assert_eq!(used(ONE, [Some(TWO), Some(TWO)]), OLD);
    }

    #[test]
    fn the_protocol_and_the_format_are_decided_apart() {
        let format_alone = Versions { protocol_highest: 1, ..TWO };

        assert_eq!(used(TWO, [Some(format_alone)]), Used { protocol: 1, format: 3 });
    }

    proptest! {
        #[test]
        fn every_broker_that_was_heard_knows_what_is_used(heard in proptest::collection::vec((1..5_u16, 2..5_u16), 0..6)) {
            let others: Vec<Versions> = heard
                .iter()
                .map(|&(protocol_highest, format)| Versions { protocol_lowest: 1, protocol_highest, format })
                .collect();
            let found = used(TWO, others.iter().copied().map(Some));

            for each in others.iter().chain([&TWO]) {
                prop_assert!(found.protocol <= each.protocol_highest && found.format <= each.format);
            }
            prop_assert!(found.protocol >= 1 && found.format >= FORMAT_OLDEST);
        }
    }
}
