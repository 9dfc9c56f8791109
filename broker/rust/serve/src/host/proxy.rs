//! The PROXY protocol, versions 1 and 2: a proxy says before everything else where its client's connection came from.
//!
//! What must stay true: only addresses that are trusted are listened to, each connection of theirs begins with a header, and
//! nothing behind the header is taken. Bytes from outside: a header is at most [`BYTES_MAX`] long, and the first byte that no
//! header has is refused at once, also where fewer bytes came than a header begins with.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::io::{AsyncRead, AsyncReadExt};

/// How version 1 begins.
const WORD: &[u8] = b"PROXY ";

/// How version 2 begins. Every header of version 1 is longer.
const SIGNATURE: [u8; SIGNATURE_BYTES] = *b"\r\n\r\n\0\r\nQUIT\n";

/// So many bytes tell whether there is a header.
pub(crate) const SIGNATURE_BYTES: usize = 12;

/// The longest line of version 1, with its end.
const LINE_BYTES_MAX: usize = 107;

/// Version 2 announces up to 64 KiB of which the addresses take 36 bytes; proxies add some values of their own.
const BYTES_MAX: usize = 2048;

/// Version 2 and a command: the connection is the proxy's own, or a client's.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// Families of addresses, with the transport.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// Families without addresses that mean anything here, whatever the transport: the connection keeps that of its socket.
const UNSPECIFIED: u8 = 0x0;
const UNIX: u8 = 0x3;

/// An address, or all that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                has_prefix(u128::from(u32::from(own)), u128::from(u32::from(other)), 32 - self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => has_prefix(u128::from(own), u128::from(other), 128 - self.bits),
            _ => false,
        }
    }
}

/// Whether two addresses are the same but for so many bits at their end.
fn has_prefix(own: u128, other: u128, rest: u32) -> bool {
    (own ^ other).checked_shr(rest).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Network, String> {
        let wrong = || format!("'{text}' is not an IP address or a network such as 10.0.0.0/8");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most {
            return Err(wrong());
        }
        Ok(Network { address, bits })
    }
}

/// Reads a header; returns where the connection came from, unless it is the proxy's own.
///
/// # Errors
/// When it is none.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<SocketAddr>> {
    let begin = read_begin(stream).await?;
    if begin == SIGNATURE {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await?;
        let [version, family, length @ ..] = head;
        let length = usize::from(u16::from_be_bytes(length));
        if SIGNATURE.len() + head.len() + length > BYTES_MAX {
            return Err(malformed("it is too long"));
        }
        let mut rest = vec![0; length];
        stream.read_exact(&mut rest).await?;
        return parse_binary(version, family, &rest);
    }
    let mut line = begin.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() == LINE_BYTES_MAX {
            return Err(malformed("the line has no end"));
        }
        // A byte at a time: what comes behind is the client's.
        line.push(stream.read_u8().await?);
    }
    let line = std::str::from_utf8(&line).map_err(|_| malformed("it is not text"))?;
    parse_line(line.trim_end())
}

/// Reads so much that it is certain whether a header comes.
async fn read_begin(stream: &mut (impl AsyncRead + Unpin)) -> Result<[u8; SIGNATURE_BYTES]> {
    let (mut begin, mut count) = ([0; SIGNATURE_BYTES], 0);
    while let Some(space) = begin.get_mut(count..).filter(|space| !space.is_empty()) {
        match stream.read(space).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => count += more,
        }
        let came = begin.get(..count).unwrap_or_default();
        if !(SIGNATURE.starts_with(came) || WORD.starts_with(came) || came.starts_with(WORD)) {
            return Err(malformed("the connection begins with other bytes"));
        }
    }
    Ok(begin)
}

/// The address that a connection counts by: the client's, where its proxy names one. `127.0.0.1` in the header of a proxy on another
/// machine is that machine, whose users are none of this one.
pub(crate) fn origin(client: Option<SocketAddr>, proxy: SocketAddr) -> SocketAddr {
    let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
    client.filter(|client| !is_loopback(*client) || is_loopback(proxy)).unwrap_or(proxy)
}

/// Whether the first bytes of a connection are those of a header.
pub(crate) fn begins_header(first: &[u8]) -> bool {
    first.starts_with(WORD) || first.starts_with(&SIGNATURE)
}

fn parse_line(line: &str) -> Result<Option<SocketAddr>> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", family @ ("TCP4" | "TCP6"), source, _, port, _] => {
            let source = source.parse().ok().filter(|source: &IpAddr| source.is_ipv4() == (family == "TCP4"));
            let source = source.zip(port.parse().ok()).map(SocketAddr::from);
            source.map(Some).ok_or_else(|| malformed("its addresses are malformed"))
        }
        _ => Err(malformed("the line is unknown")),
    }
}

fn parse_binary(version: u8, family: u8, rest: &[u8]) -> Result<Option<SocketAddr>> {
    match (version, family, rest) {
        (LOCAL, ..) => Ok(None),
        (PROXY, TCP4, &[a, b, c, d, _, _, _, _, port, low, _, _, ..]) => {
            Ok(Some(SocketAddr::from((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([port, low])))))
        }
        (PROXY, TCP6, rest) => match (rest.first_chunk::<16>(), rest.get(32..36)) {
            (Some(source), Some(&[port, low, ..])) => {
                Ok(Some(SocketAddr::from((Ipv6Addr::from(*source), u16::from_be_bytes([port, low])))))
            }
            _ => Err(malformed("it is too short for its addresses")),
        },
        (PROXY, family, _) if matches!(family >> 4, UNSPECIFIED | UNIX) => Ok(None),
        _ => Err(malformed("unknown version, command or family")),
    }
}

fn malformed(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("the PROXY protocol header cannot be read: {why}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::SocketAddr;

    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::{BYTES_MAX, LINE_BYTES_MAX, Network, SIGNATURE, begins_header, origin, read};

    /// The address, and what is left behind the header.
    fn parsed(mut bytes: &[u8]) -> Result<(Option<SocketAddr>, usize), String> {
        let found = read(&mut bytes).now_or_never().unwrap().map_err(|error| error.to_string())?;
        Ok((found, bytes.len()))
    }

    fn binary(version: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[version, family], &length, rest].concat()
    }

    fn at(address: &str) -> Option<SocketAddr> {
        Some(address.parse().unwrap())
    }

    #[test]
    fn a_line_names_the_client_and_nothing_behind_it_is_taken() {
        let line = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\nPRI * HTTP/2.0";
        assert_eq!(parsed(line), Ok((at("192.0.2.7:56324"), 14)));
        assert_eq!(parsed(b"PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n"), Ok((at("[2001:db8::7]:1"), 0)));
        assert_eq!(parsed(b"PROXY UNKNOWN\r\nab"), Ok((None, 2)));
    }

    #[test]
    fn a_binary_header_names_the_client_and_nothing_behind_it_is_taken() {
        let mut ipv4 = binary(0x21, 0x11, &[192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 4, 1, 187, 4, 0, 1, 0]);
        ipv4.extend_from_slice(b"PRI");
        assert_eq!(parsed(&ipv4), Ok((at("192.0.2.7:56324"), 3)));
        let mut ipv6 = [0; 36];
        (ipv6[15], ipv6[33]) = (1, 9);
        assert_eq!(parsed(&binary(0x21, 0x21, &ipv6)), Ok((at("[::1]:9"), 0)));
    }

    #[test]
    fn a_proxy_s_own_connection_and_families_without_addresses_keep_the_address_of_the_socket() {
        assert_eq!(parsed(b"PROXY UNKNOWN 1 2 3 4\r\n"), Ok((None, 0)));
        for (command, family, length) in
            [(0x20, 0x00, 0), (0x20, 0x11, 12), (0x21, 0x00, 0), (0x21, 0x01, 3), (0x21, 0x31, 216), (0x21, 0x32, 216)]
        {
            let found = parsed(&[&binary(command, family, &vec![7; length])[..], b"AMQP"].concat());
            assert_eq!(found, Ok((None, 4)), "{command:x} {family:x}");
        }
    }

    #[tokio::test]
    async fn the_first_byte_that_no_header_has_is_refused_though_more_may_come() {
        for wrong in [&b"AMQP\0\0\x09\x01"[..], b"PRI", b"\r\n\r\r", b"\x16", b"PROXY"] {
            let (mut client, mut broker) = tokio::io::duplex(64);
            tokio::io::AsyncWriteExt::write_all(&mut client, wrong).await.unwrap();
            let found = read(&mut broker).now_or_never();
            assert_eq!(found.is_some(), wrong != b"PROXY", "{wrong:?}");
            assert!(found.is_none_or(|found| found.is_err()));
        }
    }

    #[test]
    fn a_client_on_the_machine_of_its_proxy_is_on_this_one_only_if_the_proxy_is() {
        let origin = |client: &str, proxy: &str| origin(at(client), at(proxy).unwrap()).to_string();
        assert_eq!(origin("192.0.2.7:1", "10.0.0.5:2"), "192.0.2.7:1");
        assert_eq!(origin("127.0.0.1:1", "127.0.0.9:2"), "127.0.0.1:1");
        assert_eq!(origin("[::1]:1", "127.0.0.9:2"), "[::1]:1");
        for client in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(origin(client, "10.0.0.5:2"), "10.0.0.5:2");
        }
    }

    #[test]
    fn a_header_is_known_by_its_first_bytes() {
        assert!(begins_header(b"PROXY TCP4 1") && begins_header(&SIGNATURE));
        for other in [&b""[..], b"PRI * HTTP/2", b"AMQP\0\0\x09\x01", b"PROXY", &SIGNATURE[..11]] {
            assert!(!begins_header(other), "{other:?}");
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let endless = [&b"PROXY UNKNOWN "[..], &[b'x'; LINE_BYTES_MAX]].concat();
        for wrong in [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n",
            b"PROXY TCP4 192.0.2.7 198.51.100.1 70000 443\r\n",
            b"PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
            b"PROXY TCP4 192",
            &endless,
            &binary(0x11, 0x11, &[0; 12]),
            &binary(0x21, 0x11, &[0; 11]),
            &binary(0x21, 0x21, &[0; 35]),
            &binary(0x21, 0x12, &[0; 12]),
            &binary(0x20, 0, &[0; BYTES_MAX]),
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_network_contains_the_addresses_that_begin_with_its_bits() {
        let contains =
            |network: &str, address: &str| network.parse::<Network>().unwrap().contains(address.parse().unwrap());
        assert!(contains("10.1.0.0/16", "10.1.255.3") && !contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("10.1.2.3", "::ffff:10.1.2.3") && !contains("10.1.2.3", "10.1.2.4"));
        assert!(contains("0.0.0.0/0", "203.0.113.9") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("2001:db8::/32", "2001:db8:1::1") && !contains("2001:db8::/32", "2001:db9::1"));
        assert!(contains("::/0", "::1"));
        for wrong in ["", "proxy", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..300), is_signed in any::<bool>()) {
            let bytes = if is_signed { [&SIGNATURE[..], &bytes].concat() } else { bytes };
            let _ = parsed(&bytes);
        }
    }
}
