//! What a connection holds of queues without a stream, and the window of the responses that are on their way.

use std::sync::{Arc, Mutex, Weak};

use penstock_engine::{Shard, Subscription};
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::host::refusal::Refusal;
use crate::host::rights::{Question, Rights};
use crate::host::stalls::Later;

/// What of one connection's responses may be on its way, as large as its window for publishing.
const WINDOW_KIB: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub user: String,
    pub vhost: String,
    pub queue: u64,
}

/// What a user of a connection holds of one queue. Who takes or settles has the turn, so that none lets go of a subscription
/// that another is about to use.
pub(crate) type Place = Arc<tokio::sync::Mutex<Option<Held>>>;

/// Messages that a user took, and the user's right to hold them.
pub(crate) struct Held {
    pub subscription: Arc<Later<Subscription>>,
    _rights: Rights,
}

impl Held {
    /// Return what is held of a queue in this shard. What was held of a virtual host that was deleted, and made anew with the
    /// same numbers of queues, is let go.
    pub fn of<'a>(held: &'a mut Option<Held>, home: &Arc<Shard>) -> Option<&'a Held> {
        drop(held.take_if(|held| !Arc::ptr_eq(held.subscription.shard(), home)));
        held.as_ref()
    }
}

/// What a connection holds: a subscription per user and queue.
pub(crate) struct Pulls {
    places: Mutex<FxHashMap<Key, Place>>,
    window: Arc<Semaphore>,
}

impl Default for Pulls {
    fn default() -> Pulls {
        Pulls { places: Mutex::default(), window: Arc::new(Semaphore::new(WINDOW_KIB)) }
    }
}

impl Pulls {
    pub fn clear(&self) {
        let held = self.places.lock().map(|mut places| std::mem::take(&mut *places));
        // Each returns what it holds once it may.
        drop(held);
    }

    pub fn place(&self, key: &Key) -> Place {
        let Ok(mut places) = self.places.lock() else { return Place::default() };
        Arc::clone(places.entry(key.clone()).or_default())
    }

    /// Lets go of a subscription that holds nothing, so that it stands in no other consumer's way. Whoever has the turn now does
    /// the same. Takes the lock of the queue's shard.
    pub fn release_empty(&self, key: &Key) {
        let place = self.place(key);
        let unused = place.try_lock().ok().and_then(|mut held| {
            held.take_if(|held| Arc::strong_count(&held.subscription) == 1 && held.subscription.unacked_count() == 0)
        });
        drop(unused);
        self.forget_empty(key, &place);
    }

    /// Keep a subscription until it holds nothing, or its user's right to it is gone.
    pub fn hold(self: &Arc<Self>, key: &Key, subscription: &Arc<Later<Subscription>>, question: Question) -> Held {
        let (pulls, revoked) = (Arc::downgrade(self), Arc::downgrade(subscription));
        let (user, vhost, key) = (&key.user, &key.vhost, key.clone());
        let rights = question.watch(user, vhost, move || {
            tokio::spawn(async move {
                if let Some(pulls) = pulls.upgrade() {
                    pulls.revoke(&key, &revoked).await;
                }
            });
        });
        Held { subscription: Arc::clone(subscription), _rights: rights }
    }

    /// Return to the queue what a subscription holds, as soon as no response is on its way with messages of it.
    async fn revoke(&self, key: &Key, revoked: &Weak<Later<Subscription>>) {
        let found = self.places.lock().ok().and_then(|places| places.get(key).map(Arc::clone));
        let Some(place) = found else { return };
        let held = place.lock().await.take_if(|held| std::ptr::eq(Arc::as_ptr(&held.subscription), revoked.as_ptr()));
        drop(held);
        self.forget_empty(key, &place);
    }

    /// Forget the place of a queue of which nothing is held and that no call uses.
    fn forget_empty(&self, key: &Key, place: &Place) {
        if let Ok(mut places) = self.places.lock()
            && Arc::strong_count(place) == 2
            && place.try_lock().is_ok_and(|held| held.is_none())
        {
            places.remove(key);
        }
    }

    /// Waits until so many bytes more may be on their way.
    pub async fn room_for(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let kib = u32::try_from(bytes.div_ceil(1024).min(WINDOW_KIB)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.window).acquire_many_owned(kib).await;
        room.map_err(|_| Refusal::stopping())
    }
}
