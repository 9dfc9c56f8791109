//! The greeting that begins a connection in each direction.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `PENSTOCK` |
//! | 16 | the cluster's id |
//! | 8 | the id of the broker that says it |
//! | 8 | the id of the broker that it means |
//! | 8 | the boot of the broker: another number after each start |
//! | 2, 2 | the lowest and the highest version of the protocol that it knows |
//! | 2 | the newest format of the log that it knows |
//!
//! Numbers are little-endian. Later versions may add fields at the end, which earlier ones ignore.

use bytes::{Buf, BufMut};

use crate::settings::{BrokerId, ClusterId, Versions};

const MAGIC: &[u8; 8] = b"PENSTOCK";
const HELLO_BYTES: usize = 54;
/// Room for fields of later versions.
const HELLO_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub cluster: ClusterId,
    pub from: BrokerId,
    pub to: BrokerId,
    pub boot: u64,
    pub versions: Versions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    #[error("a greeting of {0} bytes is too short or too long")]
    Size(usize),
    #[error("the greeting is not of a broker")]
    Magic,
}

/// Two brokers that greet each other, and cannot work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("broker {0} belongs to another cluster")]
    Cluster(BrokerId),
    #[error("broker {from} means broker {meant}, and this is broker {this}; check the addresses")]
    Broker { from: BrokerId, meant: BrokerId, this: BrokerId },
    #[error("broker {0} answers at the address of another broker")]
    Answer(BrokerId),
    #[error(
        "broker {from} speaks the versions {}-{} of the protocol and this broker {}-{}; upgrade one version at a time",
        .theirs.protocol_lowest, .theirs.protocol_highest, .ours.protocol_lowest, .ours.protocol_highest
    )]
    Versions { from: BrokerId, theirs: Versions, ours: Versions },
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HELLO_BYTES);
        out.put_slice(MAGIC);
        out.put_slice(&self.cluster);
        out.put_u64_le(self.from);
        out.put_u64_le(self.to);
        out.put_u64_le(self.boot);
        out.put_u16_le(self.versions.protocol_lowest);
        out.put_u16_le(self.versions.protocol_highest);
        out.put_u16_le(self.versions.format);
        out
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, HelloError> {
        if !(HELLO_BYTES..=HELLO_BYTES_MAX).contains(&bytes.len()) {
            return Err(HelloError::Size(bytes.len()));
        }
        let mut rest = bytes;
        let mut magic = [0; MAGIC.len()];
        rest.copy_to_slice(&mut magic);
        if &magic != MAGIC {
            return Err(HelloError::Magic);
        }
        let mut cluster = [0; 16];
        rest.copy_to_slice(&mut cluster);
        let (from, to, boot) = (rest.get_u64_le(), rest.get_u64_le(), rest.get_u64_le());
        let versions = Versions {
            protocol_lowest: rest.get_u16_le(),
            protocol_highest: rest.get_u16_le(),
            format: rest.get_u16_le(),
        };
        Ok(Self { cluster, from, to, boot, versions })
    }

    /// The version of the protocol that both speak; `self` is the broker's own greeting, as an answer to `theirs`.
    ///
    /// # Errors
    /// The two are not of one cluster, not those that were meant, or have no version in common.
    pub(crate) fn agree(&self, theirs: &Hello) -> Result<u16, Refused> {
        if theirs.cluster != self.cluster {
            return Err(Refused::Cluster(theirs.from));
        }
        if theirs.to != self.from {
            return Err(Refused::Broker { from: theirs.from, meant: theirs.to, this: self.from });
        }
        if theirs.from != self.to {
            return Err(Refused::Answer(theirs.from));
        }
        let highest = self.versions.protocol_highest.min(theirs.versions.protocol_highest);
        let lowest = self.versions.protocol_lowest.max(theirs.versions.protocol_lowest);
        if highest < lowest {
            return Err(Refused::Versions { from: theirs.from, theirs: theirs.versions, ours: self.versions });
        }
        Ok(highest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello(from: BrokerId, to: BrokerId, lowest: u16, highest: u16) -> Hello {
        let versions = Versions { protocol_lowest: lowest, protocol_highest: highest, format: 2 };
        Hello { cluster: [7; 16], from, to, boot: 9, versions }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_parsed(bytes: Vec<u8>) {
            let _ = Hello::parse(&bytes);
        }

        #[test]
        fn greetings_are_parsed_as_they_were_encoded(
            cluster: [u8; 16], from: u64, to: u64, boot: u64, lowest: u16, highest: u16, format: u16, later in 0..900_usize,
        ) {
            let versions = Versions { protocol_lowest: lowest, protocol_highest: highest, format };
            let hello = Hello { cluster, from, to, boot, versions };
            let mut bytes = hello.encode();
            bytes.resize(bytes.len() + later, 0);
            prop_assert_eq!(Hello::parse(&bytes), Ok(hello));
        }
    }

    #[test]
    fn brokers_agree_on_the_highest_version_that_both_know() {
        assert_eq!(hello(1, 2, 1, 3).agree(&hello(2, 1, 2, 5)), Ok(3));
        assert_eq!(hello(1, 2, 4, 4).agree(&hello(2, 1, 2, 5)), Ok(4));
    }

    #[test]
    fn brokers_that_share_no_version_say_which_they_have() {
        let text = hello(1, 2, 1, 1).agree(&hello(2, 1, 2, 3)).map_err(|refused| refused.to_string());
        let expected =
            "broker 2 speaks the versions 2-3 of the protocol and this broker 1-1; upgrade one version at a time";
        assert_eq!(text, Err(expected.to_owned()));
    }

    #[test]
    fn a_broker_of_another_cluster_or_another_number_is_refused() {
        let other = Hello { cluster: [8; 16], ..hello(2, 1, 1, 1) };
        assert_eq!(hello(1, 2, 1, 1).agree(&other), Err(Refused::Cluster(2)));
        assert_eq!(hello(1, 2, 1, 1).agree(&hello(2, 3, 1, 1)), Err(Refused::Broker { from: 2, meant: 3, this: 1 }));
        assert_eq!(hello(1, 2, 1, 1).agree(&hello(3, 1, 1, 1)), Err(Refused::Answer(3)));
    }

    #[test]
    fn what_is_no_greeting_is_refused() {
        assert_eq!(Hello::parse(b"GET / HTTP/1.1"), Err(HelloError::Size(14)));
        assert_eq!(Hello::parse(&[b' '; HELLO_BYTES]), Err(HelloError::Magic));
        assert_eq!(Hello::parse(&[b' '; HELLO_BYTES_MAX + 1]), Err(HelloError::Size(HELLO_BYTES_MAX + 1)));
    }
}
