//! Looks in the sources of the host for a protocol: whatever serves one has to find all it needs in there.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

/// Crates and modules that speak a protocol.
const PROTOCOLS: &[&str] = &[
    "tonic",
    "tower_service",
    "http::",
    "http_body",
    "prost",
    "penstock_wire::grpc",
    "penstock_arrow",
    "crate::amqp",
    "crate::grpc",
    "crate::flight",
    "crate::server",
];

fn found_in(code: &str) -> Vec<&'static str> {
    let code: String =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect();
    PROTOCOLS.iter().copied().filter(|protocol| code.contains(protocol)).collect()
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}

#[test]
fn the_host_speaks_no_protocol() {
    let files = files_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/host"));
    assert!(files.len() > 20, "{files:?}");

    let speaks = files.iter().map(|file| (file, found_in(&std::fs::read_to_string(file).unwrap())));
    let speaks: Vec<_> = speaks.filter(|(_, found)| !found.is_empty()).collect();

    assert!(speaks.is_empty(), "{speaks:#?}");
}

#[test]
fn a_protocol_is_found_in_code_and_not_in_comments() {
    assert_eq!(found_in("// tonic\nuse tonic::Status;\n"), ["tonic"]);
    assert!(found_in("//! tonic\n").is_empty());
}
