//! The messages that users read.

use super::*;
use std::net::SocketAddr;
use std::time::Duration;

fn address() -> SocketAddr {
    "10.0.0.1:2049".parse().expect("an address")
}

fn mount(cause: MountError) -> Error {
    Error::Client(client::Error::Mount { target: "10.0.0.1:/data".to_owned(), cause })
}

#[test]
fn an_error_is_a_sentence_its_causes_and_what_to_do() {
    let refused = io::Error::other("nobody listens");
    let error = mount(MountError::Connect { address: address(), source: refused });
    assert_eq!(
        error.render(),
        "error: cannot mount 10.0.0.1:/data\n  \
           cause: 10.0.0.1:2049 does not accept connections\n  \
           cause: nobody listens\n  \
           try:   nc -vz 10.0.0.1 2049        to see whether it is reachable; or another port=\n"
    );
}

#[test]
fn an_error_that_tells_its_cause_itself_is_not_told_twice() {
    let taken = server::Error::Listen { address: address(), error: io::ErrorKind::AddrInUse.into() };
    let text = Error::from(taken).render();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.starts_with("error: cannot listen on 10.0.0.1:2049\n  cause: another program"), "{text}");
    let lab = lab::net::Error::Io { what: "read x".to_owned(), source: io::Error::other("it is gone") };
    let text = Error::from(lab).render();
    assert_eq!(text.matches("it is gone").count(), 1, "{text}");
}

#[test]
fn advice_within_a_sentence_gets_its_line() {
    let text = Error::from(lab::net::Error::NotRoot).render();
    assert_eq!(text, "error: a network lab needs root\n  try:   sudo with the same command\n");
}

#[test]
fn every_reason_not_to_mount_comes_with_advice() {
    let host = "nas".to_owned();
    let io = || io::Error::other("no");
    let reason = || "because".to_owned();
    for cause in [
        MountError::NoRdma { cause: client::VerbsError::NoDevice.into() },
        MountError::NoRdma {
            cause: client::VerbsError::Missing { library: "librdmacm.so.1", said: reason() }.into(),
        },
        over_rdma(client::VerbsError::NoRoute(address()).into()),
        over_rdma(client::VerbsError::Register { bytes: 4096, source: io() }.into()),
        over_rdma(client::RdmaError::NotListening(address())),
        over_rdma(client::RdmaError::Unreachable(address())),
        over_rdma(client::RdmaError::Closed),
        MountError::Resolve { host, source: io() },
        MountError::Local("eth9 has no address".to_owned()),
        MountError::Connect { address: address(), source: io() },
        MountError::Silent { address: address(), source: io() },
        MountError::Refused { address: address(), export: "/x".to_owned(), reason: reason() },
        MountError::Protocol { address: address(), reason: reason() },
        MountError::NoVersion4 { address: address(), reason: reason() },
        MountError::NoMinorVersion { address: address(), minor: 2 },
        MountError::OtherFileSystem { address: address(), reason: reason() },
        MountError::NoPath(Duration::from_secs(5)),
    ] {
        let text = mount(cause).render();
        assert!(text.contains("\n  cause: ") && text.contains("\n  try:   "), "{text}");
    }
}

fn over_rdma(cause: client::RdmaError) -> MountError {
    MountError::Rdma { address: address(), here: String::new(), cause }
}

#[test]
fn what_rdma_lacks_is_named_with_the_command_that_mends_it() {
    let device = mount(MountError::NoRdma { cause: client::VerbsError::NoDevice.into() }).render();
    assert!(device.contains("try:   rdma link add"), "{device}");
    let missing = client::VerbsError::Missing { library: "librdmacm.so.1", said: "not found".into() };
    let library = mount(MountError::NoRdma { cause: missing.into() }).render();
    assert!(library.contains("try:   apt-get install"), "{library}");
    let register = client::VerbsError::Register { bytes: 4096, source: io::Error::other("no") };
    let locked = mount(over_rdma(register.into())).render();
    assert!(locked.contains("try:   ulimit -l"), "{locked}");
    let nobody = mount(over_rdma(client::RdmaError::NotListening(address()))).render();
    assert!(nobody.contains("portlist"), "{nobody}");
}

#[test]
fn text_of_others_cannot_move_the_cursor() {
    let text = mount(MountError::Local("\u{1b}[2Jgone".to_owned())).render();
    assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2Jgone"), "{text}");
    let turned = mount(MountError::Local("abc\u{202e}txt.exe".to_owned())).render();
    assert!(turned.contains("abc\\u{202e}txt.exe"), "{turned}");
}

#[test]
fn a_server_within_an_experiment_tells_its_cause_and_advice() {
    let taken = server::Error::Listen { address: address(), error: io::ErrorKind::AddrInUse.into() };
    let text = Error::from(bench::Error::Embedded { nodes: 4, cause: Box::new(taken) }).render();
    let expected = "error: cannot start the embedded group of 4 nodes\n  \
        cause: cannot listen on 10.0.0.1:2049\n  \
        cause: another program listens there\n  \
        try:   ss -ltnp";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn a_cause_of_several_lines_becomes_one_without_the_excerpt() {
    let toml =
        "TOML parse error at line 3, column 9\n  |\n3 | loops = \"two\"\n  |         ^^^^^\ninvalid type\n";
    let cause = bench::ExperimentError::Value(toml.to_owned());
    let text = Error::from(bench::Error::Experiment { file: "x.toml".to_owned(), cause }).render();
    let expected = "error: cannot use x.toml\n  \
        cause: TOML parse error at line 3, column 9: invalid type\n  \
        try:   correct that line of the file\n";
    assert_eq!(text, expected);
}
