//! The messages of a publisher that are not confirmed, with the times at which they were sent. Brokers confirm in any order, one
//! message or all up to one.

use std::collections::VecDeque;

/// The time of a message that was confirmed before an older one.
const CONFIRMED: u64 = u64::MAX;

/// See the module. Invariant: the first message of `sent_ns` is not confirmed.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// The delivery tag of the first message of `sent_ns`, less one.
    before: u64,
    sent_ns: VecDeque<u64>,
    count: u64,
}

impl Unconfirmed {
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds `count` messages that were sent at the same time.
    pub fn send(&mut self, count: u64, now_ns: u64) {
        self.sent_ns.extend((0..count).map(|_| now_ns));
        self.count += count;
    }

    /// Removes what a confirm names, and hands over times, with how many messages have each. Returns how many messages it were.
    pub fn confirm(&mut self, tag: u64, multiple: bool, mut take: impl FnMut(u64, u64)) -> u64 {
        let place = tag.wrapping_sub(self.before).wrapping_sub(1);
        // Tag 0 with `multiple` stands for all.
        let up_to = if multiple && tag == 0 { self.sent_ns.len() as u64 } else { place.wrapping_add(1) };
        if up_to == 0 || up_to > self.sent_ns.len() as u64 {
            return 0;
        }
        let mut count = 0;
        if multiple {
            let (mut time, mut with_time) = (CONFIRMED, 0);
            for sent_ns in self.sent_ns.drain(..up_to as usize).filter(|sent_ns| *sent_ns != CONFIRMED) {
                if sent_ns != time {
                    take_some(time, with_time, &mut take);
                    (time, with_time) = (sent_ns, 0);
                }
                with_time += 1;
                count += 1;
            }
            take_some(time, with_time, &mut take);
            self.before += up_to;
        } else if let Some(sent_ns) = self.sent_ns.get_mut(place as usize).filter(|sent_ns| **sent_ns != CONFIRMED) {
            take(*sent_ns, 1);
            *sent_ns = CONFIRMED;
            count = 1;
        }
        while self.sent_ns.front() == Some(&CONFIRMED) {
            self.sent_ns.pop_front();
            self.before += 1;
        }
        self.count -= count;
        count
    }
}

fn take_some(time: u64, count: u64, take: &mut impl FnMut(u64, u64)) {
    if count > 0 {
        take(time, count);
    }
}

#[cfg(test)]
mod tests {
    use super::Unconfirmed;

    fn confirmed(unconfirmed: &mut Unconfirmed, tag: u64, multiple: bool) -> Vec<(u64, u64)> {
        let mut times = Vec::new();
        let count = unconfirmed.confirm(tag, multiple, |time, count| times.push((time, count)));
        assert_eq!(count, times.iter().map(|(_, count)| *count).sum::<u64>());
        times
    }

    #[test]
    fn messages_are_confirmed_in_any_order_and_once() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.send(3, 10);
        unconfirmed.send(2, 20);

        assert_eq!(confirmed(&mut unconfirmed, 2, false), [(10, 1)]);
        assert_eq!(confirmed(&mut unconfirmed, 2, false), [], "it was confirmed");
        assert_eq!(confirmed(&mut unconfirmed, 4, true), [(10, 2), (20, 1)]);
        assert_eq!(confirmed(&mut unconfirmed, 4, true), [], "all of them were");
        assert_eq!(confirmed(&mut unconfirmed, 6, false), [], "it was not sent");
        assert_eq!(unconfirmed.count(), 1);
        unconfirmed.send(1, 30);
        assert_eq!(confirmed(&mut unconfirmed, 0, true), [(20, 1), (30, 1)]);
        assert_eq!(unconfirmed.count(), 0);
    }
}
