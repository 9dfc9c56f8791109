//! What a limit of a queue's length has to know: how many messages its consumers are about to take, and how many bytes are
//! ready while the sizes of some taken messages are outstanding.

use crate::machine::Queue;
use crate::subscription::Subscription;

impl Queue {
    /// How many messages its subscriptions can take now, up to a maximum: the credit of those that wait to be woken, were
    /// woken, or are taking one run after another.
    #[must_use]
    pub fn eager_credit(&self, most: u64) -> u64 {
        if self.turns.willing_count() == 0 {
            return 0;
        }
        if self.turns.is_single() {
            // Those that stand by take nothing.
            let active = self.turns.active().and_then(|id| self.slots.get(id)).filter(|one| one.waits || one.is_busy);
            return active.map_or(0, Subscription::credit).min(most);
        }
        let mut credit = 0_u64;
        for (_, subscription) in self.slots.iter().filter(|(_, one)| one.waits || one.is_busy) {
            credit = credit.saturating_add(subscription.credit());
            if credit >= most {
                return most;
            }
        }
        credit
    }

    /// The bytes of the messages that no subscription has. Taken ones whose size is outstanding are left out with the
    /// mean size.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let (bytes, free) = (self.backlog.bytes(), self.free_count());
        if self.unsized_count == 0 {
            return bytes;
        }
        let share = u128::from(bytes) * u128::from(free) / u128::from(free + self.unsized_count).max(1);
        u64::try_from(share).unwrap_or(bytes)
    }
}
