//! WRITE at the end of a compound, whose data are received in memory of the file. RFC 8881 s18.32

use super::client::{Client, call, outcome, put};
use super::stores::on_each;
use crate::peer::{Peer, pattern};
use fs::FileHandle;
use nfs4::op::{self, Args};
use nfs4::{Stateid, Status};

fn write(stateid: Stateid, offset: u64, data: &[u8]) -> Args<'static> {
    let count = u32::try_from(data.len()).unwrap();
    Args::Write(op::write::ArgsHead { stateid, offset, stable: fs::Stability::Unstable, count })
}

/// The call of a WRITE with nothing after it.
fn request(client: &mut Client, file: FileHandle, args: &Args<'_>, data: &[u8]) -> Vec<u8> {
    client.request(data, |to| _ = to.push(&put(file)).push(args))
}

#[test]
fn a_write_at_the_end_of_a_compound_is_done_once() {
    on_each(|address| {
        let mut client = Client::new(address, "writer");
        let (file, open) = client.open("file", 3, 0).unwrap();
        let mut other = Peer::with_credential(address, client.peer.credential.clone());
        for (round, len) in [4, 6, 1000, 4096, 65_535, 65_536, 300_000, 1 << 20].into_iter().enumerate() {
            let (offset, data) = (4096 * round as u64 + 100, pattern(len, 31));
            let args = write(open, offset, &data);
            let sent = request(&mut client, file, &args, &data);
            let first = call(&mut client.peer, &sent);
            assert_eq!(outcome(&first), (Status::OK, 3), "{len}");
            let read =
                |client: &mut Client| client.read(file, open, offset, 1 << 20).unwrap().0[..len] == data;

            // The same again changes nothing, on any connection.
            assert_eq!(call(&mut other, &sent), first, "{len}");
            // Other data are another request.
            let mut false_retry = sent.clone();
            let at = sent.len() - len.next_multiple_of(4) + len - 1;
            false_retry[at] ^= 1;
            assert_eq!(outcome(&call(&mut other, &false_retry)), (Status::SEQ_FALSE_RETRY, 1), "{len}");
            assert!(read(&mut client), "{len}");
        }
    });
}

#[test]
fn data_of_a_write_that_is_refused_go_nowhere() {
    on_each(|address| {
        let mut client = Client::new(address, "refused");
        let (file, open) = client.open("file", 3, 0).unwrap();
        let (kept, data) = (pattern(70_000, 1), pattern(70_000, 2));
        assert_eq!(client.write(file, open, 0, &kept), Ok(70_000));
        let wrong = Stateid { seqid: open.seqid, other: [9; 12] };
        for (args, status) in
            [(write(wrong, 0, &data), Status::BAD_STATEID), (write(open, u64::MAX - 10, &data), Status::FBIG)]
        {
            let sent = request(&mut client, file, &args, &data);
            assert_eq!(outcome(&call(&mut client.peer, &sent)).0, status);
        }
        // A slot that is not the client's next.
        client.sequence += 1;
        let ahead = request(&mut client, file, &write(open, 0, &data), &data);
        assert_eq!(outcome(&call(&mut client.peer, &ahead)), (Status::SEQ_MISORDERED, 1));
        client.sequence -= 2;
        assert!(client.read(file, open, 0, 70_000).unwrap().0 == kept);
        // The handle of a directory.
        let export = client.export();
        let sent = request(&mut client, export, &write(open, 0, &data), &data);
        assert_eq!(outcome(&call(&mut client.peer, &sent)).0, Status::BAD_STATEID);
    });
}
