//! The network between brokers: each direction may be cut, and each message may be lost, repeated or late.

use penstock_replica::Millis;

use super::random::Random;

pub struct Network {
    count: usize,
    cut: Vec<bool>,
    /// In thousandths.
    pub loss: u64,
    pub repeats: u64,
    pub delay: Millis,
}

impl Network {
    pub fn new(count: usize) -> Network {
        Network { count, cut: vec![false; count * count], loss: 0, repeats: 0, delay: 2 }
    }

    pub fn cut(&mut self, from: usize, to: usize) {
        self.cut[from * self.count + to] = true;
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut[from * self.count + to]
    }

    pub fn heal(&mut self) {
        self.cut.fill(false);
    }

    /// The delays after which a message arrives, so none if it is lost.
    pub fn deliveries(&self, from: usize, to: usize, random: &mut Random) -> Vec<Millis> {
        if self.is_cut(from, to) || random.happens(self.loss) {
            return Vec::new();
        }
        let copies = 1 + usize::from(random.happens(self.repeats));
        (0..copies).map(|_| 1 + random.below(self.delay)).collect()
    }
}
