//! Details of a refusal: a `google.rpc.Status` with a `google.rpc.ErrorInfo`, of which a client needs who leads instead.

use crate::WireError;
use crate::protobuf::{Reader, WireType};

const STATUS: &str = "the details of a refusal";
const ERROR_INFO: &[u8] = b"/google.rpc.ErrorInfo";
const NOT_LEADER: &[u8] = b"NOT_LEADER";
const TEXT_BYTES_MAX: usize = 1 << 10;

/// The leader of a virtual host, by its name and at this address; both are empty where the refusal names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaderHint<'a> {
    pub vhost: &'a str,
    pub leader: &'a str,
    pub target: &'a str,
}

/// Returns the hint in the details of a refusal; `None` when it refuses for another reason than that another broker leads.
pub fn parse_leader_hint(details: &[u8]) -> Result<Option<LeaderHint<'_>>, WireError> {
    let mut reader = Reader::new(details, STATUS);
    while let Some((field, wire_type)) = reader.field()? {
        if field == 3 {
            let packed = reader.slice(field, wire_type)?;
            if let Some(hint) = parse_any(packed)? {
                return Ok(Some(hint));
            }
        } else {
            reader.skip(wire_type)?;
        }
    }
    Ok(None)
}

fn parse_any(bytes: &[u8]) -> Result<Option<LeaderHint<'_>>, WireError> {
    let mut reader = Reader::new(bytes, STATUS);
    let (mut kind, mut value): (&[u8], &[u8]) = (b"", b"");
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => kind = reader.slice(field, wire_type)?,
            2 => value = reader.slice(field, wire_type)?,
            _ => reader.skip(wire_type)?,
        }
    }
    if kind.ends_with(ERROR_INFO) { parse_error_info(value) } else { Ok(None) }
}

fn parse_error_info(bytes: &[u8]) -> Result<Option<LeaderHint<'_>>, WireError> {
    let mut reader = Reader::new(bytes, STATUS);
    let (mut is_refusal_to_lead, mut name) = (false, "");
    let mut hint = LeaderHint::default();
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => is_refusal_to_lead = reader.slice(field, wire_type)? == NOT_LEADER,
            3 => match parse_entry(reader.slice(field, wire_type)?)? {
                ("vhost", value) => hint.vhost = value,
                // Of a refusal that is about the virtual host itself.
                ("name", value) => name = value,
                ("leader", value) => hint.leader = value,
                ("grpc", value) => hint.target = value,
                _ => {}
            },
            _ => reader.skip(wire_type)?,
        }
    }
    if hint.vhost.is_empty() {
        hint.vhost = name;
    }
    Ok(is_refusal_to_lead.then_some(hint))
}

fn parse_entry(bytes: &[u8]) -> Result<(&str, &str), WireError> {
    let mut reader = Reader::new(bytes, STATUS);
    let mut entry = ("", "");
    while let Some((field, wire_type)) = reader.field()? {
        match (field, wire_type) {
            (1, WireType::Bytes) => entry.0 = reader.name(STATUS, TEXT_BYTES_MAX)?,
            (2, WireType::Bytes) => entry.1 = reader.name(STATUS, TEXT_BYTES_MAX)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(entry)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protobuf::put_bytes;

    fn info(reason: &str, entries: &[(&str, &str)]) -> Vec<u8> {
        let mut info = Vec::new();
        put_bytes(&mut info, 1, reason.as_bytes());
        put_bytes(&mut info, 2, b"penstock");
        for (key, value) in entries {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, key.as_bytes());
            put_bytes(&mut entry, 2, value.as_bytes());
            put_bytes(&mut info, 3, &entry);
        }
        info
    }

    fn details(kind: &str, info: &[u8]) -> Vec<u8> {
        let (mut any, mut details) = (Vec::new(), Vec::new());
        put_bytes(&mut any, 1, format!("type.googleapis.com/{kind}").as_bytes());
        put_bytes(&mut any, 2, info);
        put_bytes(&mut details, 2, b"vhost '/' is led by broker 'mq-1'");
        put_bytes(&mut details, 3, &any);
        details
    }

    #[test]
    fn a_refusal_to_lead_names_the_virtual_host_and_the_leader() {
        let of_vhost =
            info("NOT_LEADER", &[("kind", "vhost"), ("name", "/"), ("leader", "mq-1"), ("grpc", "10.0.0.5:5680")]);
        let of_queue = info("NOT_LEADER", &[("kind", "queue"), ("name", "jobs"), ("vhost", "v"), ("grpc", "")]);

        let found = details("google.rpc.ErrorInfo", &of_vhost);
        assert_eq!(
            parse_leader_hint(&found),
            Ok(Some(LeaderHint { vhost: "/", leader: "mq-1", target: "10.0.0.5:5680" }))
        );
        let found = details("google.rpc.ErrorInfo", &of_queue);
        assert_eq!(parse_leader_hint(&found), Ok(Some(LeaderHint { vhost: "v", leader: "", target: "" })));
    }

    #[test]
    fn other_refusals_name_no_leader() {
        let busy = details("google.rpc.ErrorInfo", &info("BUSY", &[("grpc", "10.0.0.5:5680")]));
        let other = details("google.rpc.ResourceInfo", &info("NOT_LEADER", &[("grpc", "10.0.0.5:5680")]));

        assert_eq!(parse_leader_hint(&busy), Ok(None));
        assert_eq!(parse_leader_hint(&other), Ok(None));
        assert_eq!(parse_leader_hint(b""), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..100usize) {
            let _ = parse_leader_hint(&bytes);
            let whole = details("google.rpc.ErrorInfo", &info("NOT_LEADER", &[("name", "/"), ("grpc", "h:1")]));
            let _ = parse_leader_hint(&whole[..cut.min(whole.len())]);
        }
    }
}
