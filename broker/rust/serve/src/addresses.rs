//! How many connections each address has open whose clients did not log in yet, so that one address does not take the places
//! of all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedSemaphorePermit;

/// An address may always have so many.
const EACH_MIN: usize = 16;

/// Of an IPv6 address: the network, because its owner has all addresses in it.
const NETWORK_OF_V6: u128 = !0 << 64;

/// See the module. Clients choose their addresses, so these are hashed in a way that clients do not foresee.
#[derive(Debug)]
pub(crate) struct Addresses {
    counts: Mutex<HashMap<IpAddr, usize>>,
    each_max: usize,
}

impl Addresses {
    /// An address may have three quarters of all connections: the rest is left to others.
    pub fn new(connections_max: usize) -> Arc<Addresses> {
        Arc::new(Addresses { counts: Mutex::default(), each_max: EACH_MIN.max(connections_max - connections_max / 4) })
    }

    pub fn each_max(&self) -> usize {
        self.each_max
    }

    /// Take a place, when the address has one left.
    pub fn place(self: &Arc<Self>, address: IpAddr) -> Option<AddressPlace> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) & NETWORK_OF_V6)),
            address => address,
        };
        let mut counts = self.counts.lock().ok()?;
        let count = counts.entry(address).or_default();
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        Some(AddressPlace { addresses: Arc::clone(self), address })
    }
}

/// A connection without a log-in, until this is dropped.
#[derive(Debug)]
pub(crate) struct AddressPlace {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let Ok(mut counts) = self.addresses.counts.lock() else { return };
        let Some(count) = counts.get_mut(&self.address) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.address);
        }
    }
}

/// A connection's place among all, and among those of its address until its client has logged in.
pub(crate) struct Place {
    pub of_address: Option<AddressPlace>,
    pub _of_all: OwnedSemaphorePermit,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Addresses, EACH_MIN};

    #[test]
    fn an_address_has_three_quarters_of_the_places_and_others_have_theirs() {
        let addresses = Addresses::new(22);
        let place = |address: &str| addresses.place(address.parse().unwrap());
        let mut places: Vec<_> = (0..=EACH_MIN).map(|_| place("192.0.2.7").unwrap()).collect();
        assert!(place("192.0.2.7").is_none() && place("::ffff:192.0.2.7").is_none());
        assert!(place("192.0.2.8").is_some());

        places.pop();

        assert!(place("192.0.2.7").is_some());
        drop(places);
        assert!(addresses.counts.lock().unwrap().is_empty());
    }

    #[test]
    fn addresses_of_one_network_count_together() {
        let addresses = Addresses::new(0);
        let places: Vec<_> = (0..EACH_MIN)
            .map(|host| addresses.place(format!("2001:db8::{host:x}").parse().unwrap()).unwrap())
            .collect();

        assert!(addresses.place("2001:db8::ffff".parse().unwrap()).is_none());
        assert!(addresses.place("2001:db8:0:1::1".parse().unwrap()).is_some());
        drop(places);
    }
}
