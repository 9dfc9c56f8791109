//! A client of HTTP/2 by hand, for requests that no library sends: it keeps to the windows, and to nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const FRAME_BYTES: usize = 16 << 10;

/// See the module.
pub struct Wire {
    socket: TcpStream,
    received: Vec<u8>,
    /// What may be sent on the connection.
    pub window: usize,
    next_stream: u32,
    /// The bytes of the answers, by stream, and the streams that were reset.
    pub answered: Vec<(u32, Vec<u8>)>,
    pub reset: Vec<u32>,
    pub is_over: bool,
}

impl Wire {
    pub fn connect(address: SocketAddr) -> std::io::Result<Wire> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())?;
        let (received, answered, reset) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Wire { socket, received, window: 65_535, next_stream: 1, answered, reset, is_over: false })
    }

    /// Opens a request.
    pub fn open(&mut self, path: &str, authorization: &str) -> std::io::Result<u32> {
        let stream = self.next_stream;
        self.next_stream += 2;
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("authorization", authorization),
        ];
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        self.socket.write_all(&frame(HEADERS, END_HEADERS, stream, &block))?;
        Ok(stream)
    }

    /// Sends as much as one frame and the connection's window take; returns how many bytes that was.
    pub fn send(&mut self, stream: u32, data: &[u8]) -> std::io::Result<usize> {
        let count = data.len().min(self.window).min(FRAME_BYTES);
        if count > 0 {
            self.socket.write_all(&frame(DATA, 0, stream, &data[..count]))?;
            self.window -= count;
        }
        Ok(count)
    }

    /// Sends bytes whatever the windows say, until the other side takes no more for so long; returns how many it took.
    pub fn press(&mut self, bytes: &[u8], patience: Duration) -> usize {
        self.socket.set_write_timeout(Some(patience)).unwrap();
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.write(&bytes[sent..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => sent += count,
            }
        }
        sent
    }

    /// Takes the frames that come within that time.
    pub fn hear(&mut self, patience: Duration) -> std::io::Result<()> {
        self.socket.set_read_timeout(Some(patience))?;
        let mut bytes = [0; 1 << 16];
        match self.socket.read(&mut bytes) {
            Ok(0) => self.is_over = true,
            Ok(count) => self.received.extend_from_slice(&bytes[..count]),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => self.is_over = true,
        }
        while self.received.len() >= 9 {
            let length = u32::from_be_bytes([0, self.received[0], self.received[1], self.received[2]]) as usize;
            if self.received.len() < 9 + length {
                break;
            }
            let rest = self.received.split_off(9 + length);
            let taken = std::mem::replace(&mut self.received, rest);
            self.is_over |= self.take(&taken).is_err();
        }
        Ok(())
    }

    fn take(&mut self, frame_bytes: &[u8]) -> std::io::Result<()> {
        let (kind, flags, payload) = (frame_bytes[3], frame_bytes[4], &frame_bytes[9..]);
        let number = |at: &[u8]| u32::from_be_bytes([at[0], at[1], at[2], at[3]]) & (u32::MAX >> 1);
        let stream = number(&frame_bytes[5..]);
        match kind {
            DATA => self.answered.push((stream, payload.to_vec())),
            RST_STREAM => self.reset.push(stream),
            SETTINGS if flags & ACK == 0 => self.socket.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            WINDOW_UPDATE if stream == 0 => self.window += number(payload) as usize,
            GOAWAY => self.is_over = true,
            _ => {}
        }
        Ok(())
    }
}

/// The head of a gRPC message.
pub fn head(length: usize) -> [u8; 5] {
    let [a, b, c, d] = u32::try_from(length).unwrap().to_be_bytes();
    [0, a, b, c, d]
}

pub fn data_frame(stream: u32, data: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, data)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header field of HPACK that refers to no table.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}
