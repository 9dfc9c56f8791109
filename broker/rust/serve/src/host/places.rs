//! How many connections may be open, and how many of them each address has whose clients did not log in yet, so that one address
//! does not take the places of all. All listeners of a host share the places.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An address may always have so many.
const EACH_MIN: usize = 16;

/// Of an IPv6 address: the network, because its owner has all addresses in it.
const NETWORK_OF_V6: u128 = !0 << 64;

/// The connections of each address without a log-in. Clients choose their addresses, so these are hashed in a way that clients do not foresee.
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
#[derive(Debug)]
pub(crate) struct Place {
    of_address: Option<AddressPlace>,
    _of_all: OwnedSemaphorePermit,
}

impl Place {
    /// The client has logged in.
    pub fn leave_address(&mut self) {
        self.of_address = None;
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    addresses: Arc<Addresses>,
    connections_max: usize,
}

impl Places {
    pub fn new(connections_max: usize) -> Places {
        let connections_max = connections_max.clamp(1, Semaphore::MAX_PERMITS);
        let all = Arc::new(Semaphore::new(connections_max));
        Places { all, addresses: Addresses::new(connections_max), connections_max }
    }

    /// A place for one more connection, from an address.
    ///
    /// # Errors
    /// Why there is none.
    pub fn take(&self, address: IpAddr) -> Result<Place, String> {
        let mut place = self.take_of_all()?;
        self.count(&mut place, address)?;
        Ok(place)
    }

    /// A place for one more connection, from an address that is not known yet.
    ///
    /// # Errors
    /// Why there is none.
    pub fn take_of_all(&self) -> Result<Place, String> {
        match Arc::clone(&self.all).try_acquire_owned() {
            Ok(of_all) => Ok(Place { of_address: None, _of_all: of_all }),
            Err(_) => Err(format!("{} connections are open, as many as connections_max allows", self.connections_max)),
        }
    }

    /// Counts a connection among those of an address.
    ///
    /// # Errors
    /// When these are as many as they may be.
    pub fn count(&self, place: &mut Place, address: IpAddr) -> Result<(), String> {
        place.of_address = self.addresses.place(address);
        if place.of_address.is_some() {
            return Ok(());
        }
        let max = self.addresses.each_max;
        Err(format!(
            "{max} connections from this address wait for a log-in, three quarters of connections_max; log in on them"
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Addresses, EACH_MIN, Places};

    #[test]
    fn a_place_is_free_again_once_its_connection_is_gone() {
        let places = Places::new(1);
        let only = places.take("192.0.2.7".parse().unwrap()).unwrap();

        let refused = places.take("192.0.2.8".parse().unwrap()).unwrap_err();
        assert_eq!(refused, "1 connections are open, as many as connections_max allows");

        drop(only);
        assert!(places.take("192.0.2.8".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_client_that_logged_in_leaves_its_address_s_place_to_others() {
        let places = Places::new(20);
        let mut taken: Vec<_> = (0..EACH_MIN).map(|_| places.take("192.0.2.7".parse().unwrap()).unwrap()).collect();
        assert!(places.take("192.0.2.7".parse().unwrap()).unwrap_err().contains("from this address"));

        taken[0].leave_address();

        assert!(places.take("192.0.2.7".parse().unwrap()).is_ok());
    }

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
