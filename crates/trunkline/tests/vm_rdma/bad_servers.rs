//! Tests servers that violate the protocol: our client reports the violation, or repeats the call
//! on a new connection and gets the right reply; nothing is left.

use crate::guest::{is_in_guest, passes_in};
use crate::pair::{GuestServer, alone, pair, wait_until_nothing_is_left};
use crate::relay::{ADDRESS, Misbehaviour, PORT, Relay};
use client::Mount;
use rpcrdma::header::HeaderError;
use verbs::{Alive, alive};

const BYTES: usize = 600_001;
/// Enough names that a listing needs registered memory for its reply.
const NAMES: usize = 150;

#[test]
fn our_client_survives_servers_that_violate_the_protocol() {
    if is_in_guest() {
        return mount_the_relay();
    }
    let _turn = alone();
    let served = GuestServer::start();
    passes_in(pair().client(), "bad_servers::our_client_survives_servers_that_violate_the_protocol");
    wait_until_nothing_is_left(pair().client());
    drop(served);
}

fn pattern() -> Vec<u8> {
    (0..BYTES).map(|at| (at % 251) as u8).collect()
}

fn read(mount: &Mount) -> client::Result<()> {
    let mut data = vec![0; BYTES];
    let count = mount.open(b"/file")?.read_all_at(&mut data, 0)?;
    assert!(count == BYTES && data == pattern(), "the data read differ from the data written");
    Ok(())
}

fn list(mount: &Mount) -> client::Result<()> {
    let entries = mount.read_directory(mount.root())?;
    let names = entries.iter().filter(|entry| entry.name.starts_with(b"a-name")).count();
    assert_eq!(names, NAMES);
    Ok(())
}

fn mount_the_relay() {
    let relay = Relay::start();
    let options = format!("proto=rdma,port={PORT},mountport=2049,nconnect=1");
    let mount = Mount::connect(&format!("{ADDRESS}:/export"), &options).expect("the client mounts");
    let file = mount.create_file(b"/file", 0o644).expect("made");
    file.write_all_at(&pattern(), 0).expect("written");
    for name in 0..NAMES {
        mount.create_file(format!("/a-name-of-some-length-{name}").as_bytes(), 0o644).expect("made");
    }
    for (misbehaviour, said) in [
        // The client continues with one call at a time, and with as many calls as there are
        // receives. RFC 8166 s3.3.1
        (Misbehaviour::Grants(0), None),
        (Misbehaviour::Grants(u32::MAX), None),
        // RFC 8166 s4.2.1
        (Misbehaviour::UnknownXid, None),
        (Misbehaviour::LongerWrite, Some("cannot be true")),
        (Misbehaviour::LongerReply, Some("cannot be true")),
        // The device ends the connection, and the call is sent again on the next.
        (Misbehaviour::WritesBeyond, None),
        // The key is that of a window, which is invalid a little earlier than it would be.
        (Misbehaviour::Invalidates, None),
        (Misbehaviour::Garbage, None),
        (Misbehaviour::Leaves, None),
        // RFC 8166 s4.5
        (Misbehaviour::Refuses(HeaderError::Chunk), Some("refuses the memory")),
        (Misbehaviour::Refuses(HeaderError::Version { low: 2, high: 3 }), Some("versions 2 to 3")),
        (Misbehaviour::Refuses(HeaderError::Other(77)), Some("unknown error 77")),
    ] {
        println!("\n{misbehaviour:?}");
        relay.misbehave_with(Some(misbehaviour));
        let outcome = if misbehaviour == Misbehaviour::LongerReply { list(&mount) } else { read(&mount) };
        match (outcome, said) {
            (Ok(()), None) => {}
            (Err(error), Some(said)) => assert!(error.to_string().contains(said), "{error}"),
            (outcome, said) => panic!("{outcome:?}, and not {said:?}"),
        }
        assert!(
            relay.has_misbehaved() || matches!(misbehaviour, Misbehaviour::Grants(_)),
            "the server did not violate the protocol in this way"
        );
        relay.misbehave_with(None);
        read(&mount).and_then(|()| list(&mount)).expect("the client has moved on");
    }
    drop(file);
    drop(mount);
    drop(relay);
    assert_eq!(alive(), Alive::default());
}
