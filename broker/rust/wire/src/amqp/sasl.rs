//! The names and passwords in the answers of the mechanisms PLAIN and AMQPLAIN, in place.

use super::argument::FieldTable;
use super::table::ValueRef;

/// A user's name, and a password or a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials<'a> {
    pub user: &'a str,
    pub password: &'a str,
}

/// Reads the answer of PLAIN: a zero, the name, a zero, the password. As at RabbitMQ, no one may act for another user.
#[must_use]
pub fn plain(response: &[u8]) -> Option<Credentials<'_>> {
    let text = std::str::from_utf8(response).ok()?;
    let (user, password) = text.strip_prefix('\0')?.split_once('\0')?;
    Some(Credentials { user, password })
}

/// Reads the answer of AMQPLAIN: a field table without its length, with LOGIN and PASSWORD.
#[must_use]
pub fn amqplain(response: &[u8]) -> Option<Credentials<'_>> {
    let table = FieldTable::check(response).ok()?;
    let text = |name: &str| match table.get(name) {
        Some(ValueRef::Text(text)) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    Some(Credentials { user: text("LOGIN")?, password: text("PASSWORD")? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use super::{Credentials, amqplain, plain};

    const ANNA: Option<Credentials<'_>> = Some(Credentials { user: "anna", password: "secret" });

    #[test]
    fn plain_has_a_name_and_a_password() {
        assert_eq!(plain(b"\0anna\0secret"), ANNA);
        assert_eq!(plain(b"\0anna\0"), Some(Credentials { user: "anna", password: "" }));
        assert_eq!(plain(b"\0anna\0a\0b"), Some(Credentials { user: "anna", password: "a\0b" }));
        for wrong in [&b""[..], b"anna\0secret", b"bob\0anna\0secret", b"\0anna", b"\0anna\0\xff"] {
            assert_eq!(plain(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn amqplain_has_a_table() {
        assert_eq!(amqplain(b"\x05LOGINS\0\0\0\x04anna\x08PASSWORDS\0\0\0\x06secret"), ANNA);
        for wrong in [&b""[..], b"\x05LOGINS\0\0\0\x04anna", b"\x05LOGINI\0\0\0\x04\x08PASSWORDS\0\0\0\0", b"\x05"] {
            assert_eq!(amqplain(wrong), None, "{wrong:?}");
        }
    }
}
