//! One channel's transaction: what it settles, until the client commits it or rolls it back. The messages that it publishes are
//! the complete ones of the channel's [`Assembly`](super::assembly::Assembly).
//!
//! What must stay true: a delivery is unacked, or part of the transaction, never both, and a rollback makes it unacked again under its
//! tag. A transaction has no more than one record of the log may have; how messages are settled, `H`, is for its user to know.

use super::method::MethodId;
use super::reply::{Exception, ReplyCode};
use super::unacked::{Delivery, Unacked};

/// Messages that a transaction publishes at most: as many records as an envelope of the log has.
pub const MESSAGES_MAX: usize = 4096;

/// Deliveries that it settles at most: they are settled in one hold of a lock.
pub const SETTLED_MAX: usize = 16_384;

const PUBLISH: MethodId = MethodId { class: 60, method: 40 };

/// See the module.
#[derive(Debug)]
pub struct Transaction<H> {
    settled: Vec<(u64, Delivery, H)>,
}

impl<H> Default for Transaction<H> {
    fn default() -> Transaction<H> {
        Transaction { settled: Vec::new() }
    }
}

/// Checks that a transaction may have so many messages, and so many bytes of them. One message alone may have more bytes.
///
/// # Errors
/// When these are too many for one transaction.
pub fn check_messages(count: usize, bytes: usize, bytes_max: usize) -> Result<(), Exception> {
    let refused = |text: String| Err(Exception::new(ReplyCode::PreconditionFailed, text, PUBLISH));
    if count > MESSAGES_MAX {
        return refused(format!("a transaction has at most {MESSAGES_MAX} messages; commit after fewer"));
    }
    if count > 1 && bytes > bytes_max {
        return refused(format!(
            "the messages of a transaction have at most {bytes_max} bytes together, as the largest message; commit after fewer"
        ));
    }
    Ok(())
}

impl<H: Copy> Transaction<H> {
    /// Moves the deliveries that a client settles from the unacked ones into the transaction.
    ///
    /// # Errors
    /// When the client does not hold the tag, or these are too many for one transaction.
    pub fn settle(
        &mut self,
        unacked: &mut Unacked,
        (tag, multiple): (u64, bool),
        how: H,
        method: MethodId,
    ) -> Result<(), Exception> {
        let settled = &mut self.settled;
        unacked.settle(tag, multiple, method, |tag, delivery| settled.push((tag, delivery, how)))?;
        if self.settled.len() > SETTLED_MAX {
            let text = format!("a transaction settles at most {SETTLED_MAX} messages; commit after fewer");
            return Err(Exception::new(ReplyCode::PreconditionFailed, text, method));
        }
        Ok(())
    }

    /// Makes its deliveries unacked again.
    pub fn roll_back(&mut self, unacked: &mut Unacked) {
        unacked.restore(self.settled.drain(..).map(|(tag, delivery, _)| (tag, delivery)));
    }

    /// Hands over what it settles, in the order in which the client did.
    pub fn commit(&mut self) -> impl Iterator<Item = (Delivery, H)> {
        std::mem::take(&mut self.settled).into_iter().map(|(_, delivery, how)| (delivery, how))
    }

    /// Return whether it settles a delivery of a consumer.
    #[must_use]
    pub fn settles_of(&self, consumer: u64) -> bool {
        self.settled.iter().any(|(_, delivery, _)| delivery.consumer == consumer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::{MESSAGES_MAX, SETTLED_MAX, Transaction, check_messages};
    use crate::amqp::method::MethodId;
    use crate::amqp::reply::ReplyCode;
    use crate::amqp::unacked::{Delivery, Unacked};

    const ACK: MethodId = MethodId { class: 60, method: 80 };

    fn unacked(count: u64) -> Unacked {
        let mut unacked = Unacked::default();
        for sequence in 1..=count {
            unacked.deliver(Delivery { consumer: sequence % 2, sequence });
        }
        unacked
    }

    fn left(unacked: &mut Unacked) -> Vec<u64> {
        let mut left = Vec::new();
        unacked.settle(0, true, ACK, |_, delivery| left.push(delivery.sequence)).unwrap();
        left
    }

    #[test]
    fn a_delivery_is_settled_once_in_a_transaction_and_again_after_a_rollback() {
        let (mut unacked, mut transaction) = (unacked(4), Transaction::default());
        transaction.settle(&mut unacked, (3, false), 'a', ACK).unwrap();
        transaction.settle(&mut unacked, (2, true), 'n', ACK).unwrap();
        let again = transaction.settle(&mut unacked, (3, false), 'a', ACK).unwrap_err();
        assert_eq!(again.text, "unknown delivery tag 3");
        assert!(transaction.settles_of(0) && transaction.settles_of(1));

        transaction.roll_back(&mut unacked);
        assert!(!transaction.settles_of(1));
        transaction.settle(&mut unacked, (3, false), 'a', ACK).unwrap();

        let settled: Vec<(u64, char)> = transaction.commit().map(|(delivery, how)| (delivery.sequence, how)).collect();
        assert_eq!((settled, transaction.commit().count()), (vec![(3, 'a')], 0));
        assert_eq!(left(&mut unacked), [1, 2, 4]);
    }

    #[test]
    fn a_transaction_is_bounded() {
        let (mut unacked, mut transaction) = (unacked(SETTLED_MAX as u64 + 1), Transaction::default());
        transaction.settle(&mut unacked, (SETTLED_MAX as u64, true), (), ACK).unwrap();
        let refused = transaction.settle(&mut unacked, (0, true), (), ACK).unwrap_err();
        assert_eq!((refused.code, refused.method), (ReplyCode::PreconditionFailed, ACK));
        assert_eq!(refused.text, "a transaction settles at most 16384 messages; commit after fewer");

        assert!(check_messages(MESSAGES_MAX, 100, 100).is_ok() && check_messages(1, 101, 100).is_ok());
        let refused = check_messages(MESSAGES_MAX + 1, 0, 100).unwrap_err();
        assert_eq!(refused.text, "a transaction has at most 4096 messages; commit after fewer");
        let refused = check_messages(2, 101, 100).unwrap_err();
        assert_eq!(refused.code, ReplyCode::PreconditionFailed);
        assert!(refused.text.starts_with("the messages of a transaction have at most 100 bytes together"));
    }

    proptest! {
        /// Whatever a client settles, a rollback leaves it with what it had.
        #[test]
        fn a_rollback_undoes_all(settled in prop::collection::vec((0..30_u64, any::<bool>()), 0..20)) {
            let (mut unacked, mut transaction) = (unacked(25), Transaction::default());
            for tags in settled {
                let _ = transaction.settle(&mut unacked, tags, (), ACK);
            }

            transaction.roll_back(&mut unacked);

            prop_assert_eq!(unacked.count(), 25);
            prop_assert_eq!(left(&mut unacked), (1..=25).collect::<Vec<u64>>());
        }
    }
}
