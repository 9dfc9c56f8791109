//! Clients that wait for direct replies: what is sent to such a name goes to its connection, past every queue.
//!
//! What must stay true: a name cannot be guessed, and whoever knows it may send replies to it, in its virtual host. Letters wait in
//! memory until their connection takes them; they count in its part of the memory budget, and what finds no room there is not
//! taken. With the client goes its name, and what was not taken.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_wire::amqp::replies::REPLY_TO;
use rustc_hash::FxHashMap;

use crate::host::memory::{Account, Outgoing, Part};
use crate::host::ring::Ring;

/// So much may always wait for a client, also when the budget is spent, and so many letters at all.
const FREE_BYTES: usize = 4 << 10;
const LETTERS_MAX: usize = 65_536;

/// A message that is sent to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub properties: Vec<u8>,
    pub body: Vec<u8>,
}

impl Letter {
    fn bytes(&self) -> usize {
        self.properties.len() + self.body.len()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    by_name: Mutex<FxHashMap<Vec<u8>, Arc<Mailbox>>>,
    last_number: AtomicU64,
    /// Its keys are random, and nobody learns them.
    secret: RandomState,
}

#[derive(Debug)]
struct Mailbox {
    vhost: String,
    ring: Ring,
    number: u64,
    letters: Mutex<Letters>,
}

#[derive(Debug)]
struct Letters {
    waiting: VecDeque<Letter>,
    bytes: usize,
    part: Part,
    outgoing: Outgoing,
}

/// A name that replies come to, until this is dropped.
#[derive(Debug)]
pub(crate) struct Address {
    replies: Arc<Replies>,
    mailbox: Arc<Mailbox>,
    pub name: Vec<u8>,
}

impl Replies {
    /// Makes a name for a client of a virtual host. The ring names it by a number when something has come.
    pub fn open(self: &Arc<Self>, vhost: &str, ring: (&Ring, u64), account: &Arc<Account>) -> Address {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        let [high, low] = [(number, 0), (number, 1)].map(|of| self.secret.hash_one(of));
        let name = [REPLY_TO, format!(".{high:016x}{low:016x}").as_bytes()].concat();
        let (part, outgoing) = (Part::take(account, 0), Outgoing::new(account));
        let letters = Mutex::new(Letters { waiting: VecDeque::new(), bytes: 0, part, outgoing });
        let mailbox = Arc::new(Mailbox { vhost: vhost.to_owned(), ring: ring.0.clone(), number: ring.1, letters });
        self.lock().insert(name.clone(), Arc::clone(&mailbox));
        Address { replies: Arc::clone(self), mailbox, name }
    }

    /// Sends a message to a name; false when nobody waits there, or has no room for it.
    pub fn send(&self, vhost: &str, name: &[u8], letter: impl FnOnce() -> Letter) -> bool {
        let Some(mailbox) = self.find(vhost, name) else { return false };
        let is_taken = mailbox.lock().put(letter());
        if is_taken {
            mailbox.ring.ring_for(mailbox.number);
        }
        is_taken
    }

    /// Whether somebody waits for replies to a name.
    pub fn is_there(&self, vhost: &str, name: &[u8]) -> bool {
        self.find(vhost, name).is_some()
    }

    fn find(&self, vhost: &str, name: &[u8]) -> Option<Arc<Mailbox>> {
        self.lock().get(name).filter(|mailbox| mailbox.vhost == vhost).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<Vec<u8>, Arc<Mailbox>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Letters {
    fn put(&mut self, letter: Letter) -> bool {
        let bytes = self.bytes + letter.bytes();
        if self.waiting.len() >= LETTERS_MAX || (bytes > FREE_BYTES && !self.outgoing.has_room()) {
            return false;
        }
        self.count(bytes);
        self.waiting.push_back(letter);
        true
    }

    fn count(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.part.resize(bytes);
    }
}

impl Address {
    /// The next message.
    pub fn take(&self) -> Option<Letter> {
        let mut letters = self.mailbox.lock();
        let letter = letters.waiting.pop_front()?;
        let bytes = letters.bytes - letter.bytes();
        letters.count(bytes);
        Some(letter)
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        self.replies.lock().remove(&self.name);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use penstock_wire::amqp::replies::is_reply;

    use super::{FREE_BYTES, Letter, Replies};
    use crate::host::memory::{Account, Memory};
    use crate::host::ring::Ring;

    fn letter(bytes: usize) -> Letter {
        Letter { properties: Vec::new(), body: vec![b'x'; bytes] }
    }

    #[test]
    fn a_reply_comes_to_its_name_in_its_virtual_host_while_somebody_waits() {
        let (replies, account) = (Arc::<Replies>::default(), Arc::new(Account::new(&Arc::default())));
        let (ring, other) = (Ring::default(), Ring::default());
        let (address, beside) = (replies.open("/", (&ring, 7), &account), replies.open("/", (&other, 8), &account));
        assert!(is_reply(b"", &address.name) && address.name != beside.name);

        assert!(replies.send("/", &address.name, || letter(3)));

        let mut numbers = Vec::new();
        ring.take(&mut numbers);
        assert_eq!(numbers, [7]);
        assert!(other.heard().now_or_never().is_none());
        assert_eq!((address.take(), address.take()), (Some(letter(3)), None));
        assert!(!replies.send("v", &address.name, || letter(3)) && !replies.is_there("v", &address.name));
        let name = address.name.clone();
        drop(address);
        assert!(!replies.send("/", &name, || letter(3)) && !replies.is_there("/", &name));
        assert!(replies.is_there("/", &beside.name));
    }

    #[test]
    fn replies_that_find_no_room_are_not_taken() {
        let memory = Arc::new(Memory::new(1 << 20, 0));
        let (replies, account) = (Arc::<Replies>::default(), Arc::new(Account::new(&memory)));
        let address = replies.open("/", (&Ring::default(), 1), &account);
        assert!(replies.send("/", &address.name, || letter(1 << 20)));
        assert!(!replies.send("/", &address.name, || letter(1)), "what waits is above the bound");
        assert_eq!(memory.used().response_bytes, 1 << 20);

        assert!(address.take().is_some());
        assert_eq!(memory.used().response_bytes, 0);
        assert!(replies.send("/", &address.name, || letter(FREE_BYTES)));
        drop((address, account));
        assert_eq!(memory.used().response_bytes, 0);
    }
}
