//! The subscriptions of a queue, by id, with one look-up.
//!
//! An id is a slot and how often that slot was used before, so an id that has ended never finds a later subscription.

use crate::subscription::{Subscription, SubscriptionId};

/// Invariant: `vacant` names every slot without a subscription exactly once.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    subscription: Option<Subscription>,
}

impl Slots {
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    pub(crate) fn insert(&mut self, subscription: Subscription) -> SubscriptionId {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let Some(slot) = self.slots.get_mut(place as usize) else { return id(u32::MAX, place) };
        slot.generation = slot.generation.wrapping_add(1);
        slot.subscription = Some(subscription);
        id(slot.generation, place)
    }

    pub(crate) fn get(&self, id: SubscriptionId) -> Option<&Subscription> {
        let slot = self.slots.get(place(id) as usize)?;
        slot.subscription.as_ref().filter(|_| slot.generation == generation(id))
    }

    pub(crate) fn get_mut(&mut self, id: SubscriptionId) -> Option<&mut Subscription> {
        let slot = self.slots.get_mut(place(id) as usize)?;
        slot.subscription.as_mut().filter(|_| slot.generation == generation(id))
    }

    pub(crate) fn remove(&mut self, id: SubscriptionId) -> Option<Subscription> {
        let slot = self.slots.get_mut(place(id) as usize)?;
        let subscription = slot.subscription.take_if(|_| slot.generation == generation(id))?;
        self.vacant.push(place(id));
        Some(subscription)
    }

    /// The id of the subscription in a slot.
    pub(crate) fn id_at(&self, place: u32) -> Option<SubscriptionId> {
        let slot = self.slots.get(place as usize)?;
        slot.subscription.as_ref().map(|_| id(slot.generation, place))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SubscriptionId, &Subscription)> {
        (0u32..)
            .zip(&self.slots)
            .filter_map(|(place, slot)| Some((id(slot.generation, place), slot.subscription.as_ref()?)))
    }
}

/// The slot of an id, whether or not the subscription still exists.
pub(crate) fn place(id: SubscriptionId) -> u32 {
    (id.0 & u64::from(u32::MAX)) as u32
}

fn generation(id: SubscriptionId) -> u32 {
    (id.0 >> 32) as u32
}

fn id(generation: u32, place: u32) -> SubscriptionId {
    SubscriptionId(u64::from(generation) << 32 | u64::from(place))
}
