//! Taking messages by their sequences: after a start, those that a lease had.

use crate::backlog::Backlog;
use crate::held::Held;
use crate::ids::{Sequence, SequenceRange};

impl Backlog {
    /// Takes exactly the ready and the waiting messages of a range. Messages before them that were never taken are kept one by
    /// one from now on.
    pub(crate) fn take_range(&mut self, range: SequenceRange, out: &mut Vec<Held>) {
        if range.last < range.first {
            return;
        }
        // The log keeps the time of a message that had waited, so a start makes it wait again although it was taken since.
        self.release_range(range);
        self.take_returned_in(range, out);
        while self.cursor <= range.last {
            let wanted = range.last.0.saturating_sub(self.cursor.0).saturating_add(1);
            let Some((run, delivery_count)) = self.take_fresh(wanted) else { return };
            for number in run {
                let message = Held::new(Sequence(number), delivery_count);
                if message.sequence >= range.first {
                    out.push(message);
                } else {
                    self.put_back(message);
                }
            }
        }
    }

    fn release_range(&mut self, range: SequenceRange) {
        let mut from = range.first;
        while let Some(sequence) = self.delayed.as_ref().and_then(|delayed| delayed.next_waiting(from))
            && sequence <= range.last
        {
            self.release(sequence);
            from = sequence.next();
        }
    }

    /// Takes the returned and the released messages of a range.
    fn take_returned_in(&mut self, range: SequenceRange, out: &mut Vec<Held>) {
        let returned: Vec<Sequence> =
            self.returned.range(range.first..=range.last).map(|(&number, _)| number).collect();
        for message in returned.iter().filter_map(|number| self.returned.remove(number)) {
            self.bytes = self.bytes.saturating_sub(u64::from(message.bytes().unwrap_or(0)));
            self.count -= 1;
            out.push(message);
        }
        while let Some(sequence) = self.delayed.as_mut().and_then(|delayed| delayed.take_released_in(range)) {
            self.count -= 1;
            out.push(Held::new(sequence, 0));
        }
        self.forget_delayed();
    }
}
