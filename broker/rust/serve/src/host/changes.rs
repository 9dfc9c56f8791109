//! Which open streams a change of permissions or topology concerns.
//!
//! Changes are numbered. Remembered are the last ones of each user, of each user in each virtual host, and of each virtual
//! host's topology, so that a stream asks again only after a change of its own user or virtual host. The marks are written
//! before `last` moves on: whoever reads `last` first and the marks afterwards misses nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::watch;

/// Above so many remembered names all are forgotten, and every stream asks again once.
const MARKS_MAX: usize = 16_384;

#[derive(Debug)]
pub(crate) struct Changes {
    last: AtomicU64,
    marks: Mutex<Marks>,
    told: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Marks {
    /// Changes of rights, and of topology, that concern everybody.
    rights: u64,
    topology: u64,
    users: FxHashMap<String, UserMarks>,
    topologies: FxHashMap<String, u64>,
    count: usize,
}

#[derive(Debug, Default)]
struct UserMarks {
    everywhere: u64,
    by_vhost: FxHashMap<String, u64>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes { last: AtomicU64::new(0), marks: Mutex::default(), told: watch::Sender::new(0) }
    }
}

impl Changes {
    /// Note a change of the topology of one virtual host, or of all.
    pub fn topology(&self, vhost: Option<&str>) {
        self.note(|marks, number| match vhost {
            None => marks.topology = number,
            Some(vhost) => {
                marks.count += usize::from(marks.topologies.insert(vhost.to_owned(), number).is_none());
            }
        });
    }

    /// Note a change of the rights of one user or of all, in one virtual host or in all, and wake the streams.
    pub fn rights(&self, user: Option<&str>, vhost: Option<&str>) {
        let number = self.note(|marks, number| match (user, vhost) {
            (None, _) => marks.rights = number,
            (Some(user), vhost) => {
                marks.count += usize::from(!marks.users.contains_key(user));
                let of_user = marks.users.entry(user.to_owned()).or_default();
                match vhost {
                    None => of_user.everywhere = number,
                    Some(vhost) => {
                        marks.count += usize::from(of_user.by_vhost.insert(vhost.to_owned(), number).is_none());
                    }
                }
            }
        });
        self.told.send_replace(number);
    }

    /// Return the number of the last change.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Return the number of the last change of a user's rights in a virtual host.
    pub fn rights_of(&self, user: &str, vhost: &str) -> u64 {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).rights_of(user, vhost)
    }

    /// Return the number of the last change of what a user may publish in a virtual host.
    pub fn permits_of(&self, user: &str, vhost: &str) -> u64 {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let topology = marks.topologies.get(vhost).copied().unwrap_or_default().max(marks.topology);
        marks.rights_of(user, vhost).max(topology)
    }

    /// Return a receiver that hears of every change of rights from now on.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    fn note(&self, change: impl FnOnce(&mut Marks, u64)) -> u64 {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.last.load(Ordering::Acquire) + 1;
        change(&mut marks, number);
        if marks.count > MARKS_MAX {
            *marks = Marks { rights: number, topology: number, ..Marks::default() };
            self.told.send_replace(number);
        }
        self.last.store(number, Ordering::Release);
        number
    }
}

impl Marks {
    fn rights_of(&self, user: &str, vhost: &str) -> u64 {
        let Some(of_user) = self.users.get(user) else { return self.rights };
        let in_vhost = of_user.by_vhost.get(vhost).copied().unwrap_or_default();
        self.rights.max(of_user.everywhere).max(in_vhost)
    }
}

#[cfg(test)]
mod tests {
    use super::{Changes, MARKS_MAX};

    #[test]
    fn a_change_concerns_its_user_and_its_virtual_host_alone() {
        let changes = Changes::default();
        let all = || [("anna", "/"), ("anna", "blue"), ("ben", "/")];
        let rights = || all().map(|(user, vhost)| changes.rights_of(user, vhost));
        let permits = || all().map(|(user, vhost)| changes.permits_of(user, vhost));

        changes.rights(Some("anna"), Some("/"));
        assert_eq!((rights(), permits()), ([1, 0, 0], [1, 0, 0]));
        changes.rights(Some("anna"), None);
        assert_eq!((rights(), permits()), ([2, 2, 0], [2, 2, 0]));
        changes.topology(Some("/"));
        assert_eq!((rights(), permits()), ([2, 2, 0], [3, 2, 3]));
        changes.topology(None);
        assert_eq!((rights(), permits()), ([2, 2, 0], [4, 4, 4]));
        changes.rights(None, None);
        assert_eq!((rights(), permits()), ([5, 5, 5], [5, 5, 5]));
        assert_eq!(changes.last(), 5);
    }

    #[test]
    fn too_many_names_are_forgotten_and_everybody_asks_again() {
        let changes = Changes::default();
        let mut told = changes.subscribe();
        for number in 0..MARKS_MAX / 2 {
            changes.rights(Some(&number.to_string()), Some("/"));
        }
        assert_eq!(changes.rights_of("anna", "/"), 0);
        told.mark_unchanged();

        changes.topology(Some("one"));

        assert_eq!(changes.rights_of("anna", "/"), changes.last());
        assert!(told.has_changed().is_ok_and(|changed| changed), "the streams are woken");
    }
}
