//! Tests a call that is sent to two nodes at once: the call of one client is executed by one node,
//! and both replies are equal; the calls of two neighbours are both executed.

use crate::fixtures::{Directories, EXPORT, Node, file, mkdir, remove};
use crate::peer::Peer;
use nfs3::{Procedure, Status};

/// The first xid of the calls whose whole reply is cached.
const WHOLE: u32 = 0x8000_0001;
const ROUNDS: u32 = 100;
/// With neighbours, one of which waits until the other has its reply.
const NEIGHBOURS_ROUNDS: u32 = 10;

/// Sends each call to both nodes, in alternating order.
fn race(directories: &Directories, peers: &mut [Peer; 2], first_xid: u32, rounds: u32, are_neighbours: bool) {
    let root = peers[0].mount(EXPORT);
    for round in 0..rounds {
        let name = format!("name-{first_xid:x}-{round}").into_bytes();
        let (procedure, args) = match round % 2 {
            0 => {
                file(directories, std::str::from_utf8(&name).expect("ASCII"), b"");
                (Procedure::Remove, remove(root, &name))
            }
            _ => (Procedure::MkDir, mkdir(root, &name)),
        };
        peers.iter_mut().for_each(|peer| peer.call(first_xid + round, procedure, &args));
        let mut answers = peers.each_mut().map(Peer::receive);
        if are_neighbours {
            answers.sort();
            let second = if round % 2 == 0 { Status::NOENT } else { Status::EXIST };
            assert_eq!(answers[0].1[..4], [0; 4], "round {round}: {procedure:?}");
            assert_eq!(answers[1].1[..4], second.0.to_be_bytes(), "round {round}: {procedure:?}");
            peers.reverse();
            continue;
        }
        // Executed twice, the second call would get NFS3ERR_NOENT or NFS3ERR_EXIST.
        assert_eq!(answers[0].1[..4], [0; 4], "round {round}: {procedure:?}");
        assert_eq!(answers[0], answers[1], "round {round}: {procedure:?}");
        peers.reverse();
    }
}

#[test]
fn a_call_sent_to_two_nodes_at_once_is_executed_by_one_and_answered_by_both() {
    let directories = Directories::new("group-at-once");
    let nodes = [1, 2].map(|number| Node::start(&directories, number));
    race(&directories, &mut nodes.each_ref().map(|node| node.connect(7)), WHOLE, ROUNDS, false);
    assert_eq!(nodes.iter().map(|node| node.replayed("REMOVE")).sum::<u64>(), u64::from(ROUNDS) / 2);
    let neighbours = &mut nodes.each_ref().map(|node| Peer::foreign(node.address));
    race(&directories, neighbours, 100, NEIGHBOURS_ROUNDS, true);
}
