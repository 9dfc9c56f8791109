//! The request of HTTP/1.1 by which a client asks for a WebSocket (RFC 6455, section 4), and the answer.
//!
//! Bytes from outside: a request has [`REQUEST_BYTES_MAX`] at most, and [`HEADERS_MAX`] headers. Any path is served. A client that
//! names subprotocols has to name the one that is served here; one that names none is served.
//!
//! Browsers let any page open a WebSocket to any address, also one on the user's own machine, and say in `Origin` which page it is.
//! A page of another host than the one that is asked is served only if its origin is listed.

use std::io::{Error, ErrorKind};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Buf, BytesMut};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::host::web_socket::WebSocket;

/// Lets pages of every origin in.
const ANY: &str = "*";

const REQUEST_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;

/// What the RFC appends to the key of a client.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const KEY_BYTES: usize = 16;

/// What is said to a client, and how long its request was when it is served.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    response: String,
    served: Result<usize, &'static str>,
}

/// Reads a request from a socket, and answers it; nothing when the client closes the connection without a byte.
///
/// # Errors
/// When it asks for no WebSocket of the subprotocol, or the client is gone.
pub(crate) async fn upgrade<S>(
    mut socket: S,
    subprotocol: &str,
    origins: &[String],
) -> std::io::Result<Option<WebSocket<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut input = BytesMut::new();
    loop {
        if let Some(Answer { response, served }) = answer(&input, subprotocol, origins) {
            socket.write_all(response.as_bytes()).await?;
            socket.flush().await?;
            let length = served.map_err(|why| Error::new(ErrorKind::InvalidData, why))?;
            input.advance(length);
            return Ok(Some(WebSocket::new(socket, input)));
        }
        let mut bytes = [0; 1024];
        let count = match socket.read(&mut bytes).await {
            Ok(0) | Err(_) if input.is_empty() => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            read => read?,
        };
        input.extend_from_slice(bytes.get(..count).unwrap_or_default());
    }
}

/// The answer to a request, once it is whole or certainly none.
fn answer(request: &[u8], subprotocol: &str, origins: &[String]) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(length)) => Some(answer_to(&parsed, length, (subprotocol, origins))),
        Ok(httparse::Status::Partial) if request.len() < REQUEST_BYTES_MAX => None,
        Ok(httparse::Status::Partial) => {
            Some(refused("431 Request Header Fields Too Large", "the request is too large"))
        }
        Err(httparse::Error::TooManyHeaders) => {
            Some(refused("431 Request Header Fields Too Large", "the request has too many headers"))
        }
        Err(_) => Some(refused("400 Bad Request", "the request is not HTTP/1.1")),
    }
}

fn answer_to(request: &httparse::Request<'_, '_>, length: usize, (subprotocol, origins): (&str, &[String])) -> Answer {
    let lists = |name: &'static str, word: &str| values(request, name).any(|value| value.eq_ignore_ascii_case(word));
    if request.method != Some("GET") || request.version != Some(1) {
        return refused("405 Method Not Allowed\r\nAllow: GET", "the request is not a GET of HTTP/1.1");
    }
    if !lists("upgrade", "websocket") || !lists("connection", "upgrade") {
        return refused("426 Upgrade Required\r\nUpgrade: websocket", "the request asks for no WebSocket");
    }
    if !lists("sec-websocket-version", "13") {
        return refused(
            "426 Upgrade Required\r\nSec-WebSocket-Version: 13",
            "the WebSocket has another version than 13",
        );
    }
    if !may_come(request, origins) {
        return refused("403 Forbidden", "the origin of the page is not among amqp_ws_origins");
    }
    let mut keys = values(request, "sec-websocket-key");
    let key = match (keys.next(), keys.next()) {
        (Some(key), None) if BASE64.decode(key).is_ok_and(|key| key.len() == KEY_BYTES) => key,
        _ => return refused("400 Bad Request", "the request has no key of 16 bytes"),
    };
    let names_any = values(request, "sec-websocket-protocol").next().is_some();
    let chosen = match values(request, "sec-websocket-protocol").find(|name| *name == subprotocol) {
        Some(name) => format!("Sec-WebSocket-Protocol: {name}\r\n"),
        None if names_any => return refused("400 Bad Request", "the request names other subprotocols only"),
        None => String::new(),
    };
    let accepted = BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()));
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: \
         {accepted}\r\n{chosen}\r\n"
    );
    Answer { response, served: Ok(length) }
}

/// Whether the page that asks, if it is one, may: it is of the host that it asks, or its origin is listed.
fn may_come(request: &httparse::Request<'_, '_>, origins: &[String]) -> bool {
    let host = values(request, "host").next();
    values(request, "origin").all(|origin| {
        let is_own =
            origin.split_once("://").is_some_and(|(_, of)| host.is_some_and(|host| of.eq_ignore_ascii_case(host)));
        is_own || origins.iter().any(|listed| listed == ANY || listed.eq_ignore_ascii_case(origin))
    })
}

/// The words of all headers of a name, which have commas between them.
fn values<'a>(request: &'a httparse::Request<'_, '_>, name: &'static str) -> impl Iterator<Item = &'a str> {
    let named = request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    let texts = named.filter_map(|header| std::str::from_utf8(header.value).ok());
    texts.flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

fn refused(status: &str, why: &'static str) -> Answer {
    let length = why.len() + 1;
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}\n"
    );
    Answer { response, served: Err(why) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{REQUEST_BYTES_MAX, answer};

    const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const GOOD: &str = "GET /ws HTTP/1.1\r\nHost: mq\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
                        Sec-WebSocket-Version: 13\r\n";

    fn answer_of(request: &str) -> (String, Result<usize, &'static str>) {
        let found = answer(request.as_bytes(), "amqp", &[]).unwrap();
        (found.response, found.served)
    }

    #[test]
    fn the_key_and_the_subprotocol_are_answered() {
        let request = format!("{GOOD}{KEY}Sec-WebSocket-Protocol: mqtt, amqp\r\n\r\n");
        for cut in 0..request.len() {
            assert_eq!(answer(&request.as_bytes()[..cut], "amqp", &[]), None, "{cut} bytes are no whole request");
        }

        let (response, served) = answer_of(&format!("{request}behind"));

        assert_eq!(served, Ok(request.len()));
        assert_eq!(
            response,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
        );
        let (response, served) = answer_of(&format!("{GOOD}{KEY}\r\n"));
        assert!(served.is_ok() && !response.contains("Protocol:"), "a client that names none is served");
    }

    #[test]
    fn a_page_of_another_host_is_served_only_if_its_origin_is_listed() {
        let status = |origin: &str, origins: &[&str]| {
            let origins: Vec<_> = origins.iter().map(|origin| (*origin).to_owned()).collect();
            let request = format!("{GOOD}{KEY}Origin: {origin}\r\n\r\n");
            answer(request.as_bytes(), "amqp", &origins).unwrap().response.split(' ').nth(1).unwrap().to_owned()
        };
        assert_eq!(status("https://evil.example", &[]), "403");
        assert_eq!(status("null", &[]), "403");
        assert_eq!(status("https://mq.evil.example", &[]), "403");
        assert_eq!(status("https://mq", &[]), "101", "the host that is asked");
        assert_eq!(status("https://shop.example", &["https://other.example", "https://shop.example"]), "101");
        assert_eq!(status("http://shop.example", &["https://shop.example"]), "403");
        assert_eq!(status("https://evil.example", &["*"]), "101");
    }

    #[test]
    fn what_is_no_request_for_the_subprotocol_is_refused_with_the_reason() {
        let refused = |request: &str| {
            let (response, served) = answer_of(request);
            assert!(response.ends_with(&format!("{}\n", served.unwrap_err())));
            response.split(' ').nth(1).unwrap().to_owned()
        };
        assert_eq!(refused(&format!("{GOOD}{KEY}Sec-WebSocket-Protocol: mqtt\r\n\r\n")), "400");
        assert_eq!(refused(&format!("{GOOD}\r\n")), "400");
        assert_eq!(refused(&format!("{GOOD}Sec-WebSocket-Key: c2hvcnQ=\r\n\r\n")), "400");
        assert_eq!(refused(&format!("{GOOD}{KEY}{KEY}\r\n")), "400");
        assert_eq!(refused(&format!("{}{KEY}\r\n", GOOD.replace("13", "8"))), "426");
        assert_eq!(refused("GET / HTTP/1.1\r\nHost: mq\r\n\r\n"), "426");
        assert_eq!(refused(&format!("{}{KEY}\r\n", GOOD.replace("GET", "POST"))), "405");
        assert_eq!(refused(&format!("{}{KEY}\r\n", GOOD.replace("HTTP/1.1", "HTTP/1.0"))), "405");
        assert_eq!(refused("AMQP\0\0\x09\x01 and more\r\n\r\n"), "400");
        assert_eq!(refused(&format!("{GOOD}X: {}", "x".repeat(REQUEST_BYTES_MAX))), "431");
        assert_eq!(refused(&format!("{GOOD}{}\r\n", "X: y\r\n".repeat(64))), "431");
    }
}
