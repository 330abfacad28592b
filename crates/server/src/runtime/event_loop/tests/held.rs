//! Tests the memory that one connection holds, and when it is ended for others.

use super::*;
use socket2::SockRef;

#[test]
fn a_record_that_waits_for_memory_is_never_silent_and_is_received_in_the_end() {
    let mut single = Single::new();
    let file = single.file();
    let stable = proc::write::Stable::FileSync;
    let args = proc::write::Args { file, offset: 0, count: BLOCK, stable, data_len: BLOCK };
    let data = vec![9; BLOCK as usize];
    let write = record(nfs3::PROGRAM, Procedure::Write.number(), &[&encoded(&args)[..], &data].concat());
    let (begin, rest) = write.split_at(40 << 10);
    single.send(begin);
    let (room, silence_max) = (Some(64 << 10), Duration::from_secs(60));
    assert!(matches!(single.turn_with(room, false), Step::Wait));
    let wanted = single.connection.waits_for_room().expect("it waits").1;
    assert!(wanted >= BLOCK as usize, "{wanted}");
    assert!(!single.connection.wanted().read);
    assert!(
        single.connection.held_bytes() < 128 << 10,
        "nothing more is received: {}",
        single.connection.held_bytes()
    );
    let later = clock::now() + Duration::from_secs(3600);
    assert!(!single.connection.is_stuck(later, silence_max));
    assert!(single.connection.overdue_since(later).is_none());

    single.turn(false);
    assert!(single.connection.waits_for_room().is_none());
    assert!(!single.connection.is_stuck(clock::now(), silence_max), "its silence begins now");
    single.connection.settle();
    assert!(single.connection.held_bytes() >= BLOCK as usize, "all of its memory is charged");
    let later = clock::now() + Duration::from_secs(3600);
    assert!(
        single.connection.is_stuck(later, silence_max) && single.connection.overdue_since(later).is_some()
    );
    let (sender, rest) = (single.client.try_clone().unwrap(), rest.to_vec());
    let sending = std::thread::spawn(move || (&sender).write_all(&rest).unwrap());
    // With no room at all: the record was given its room before.
    while single.connection.stream.within_record() {
        assert!(matches!(single.turn_with(Some(0), false), Step::Wait | Step::Yield));
    }
    sending.join().unwrap();
    single.connection.settle();
    assert_eq!(single.group.budget.room(single.connection.account()), single.group.limits.held_bytes_max / 2);
}

#[test]
fn replies_fit_the_memory_that_is_left() {
    let mut single = Single::new();
    let file = single.file();
    let read = |count| nfs(Procedure::Read, &proc::read::Args { file, offset: 0, count });
    let replied = |single: &mut Single, room| {
        single.send(&read(BLOCK));
        single.turn_with(room, false);
        let mut mark = [0; 4];
        (&single.client).read_exact(&mut mark).unwrap();
        let mut reply = vec![0; Mark::decode(mark).len as usize];
        (&single.client).read_exact(&mut reply).unwrap();
        let mut reader = Reader::new(&reply);
        rpc::reply::decode(&mut reader).unwrap();
        let head = proc::read::Reply::decode(&mut reader).unwrap().into_result().unwrap();
        (head.count, head.eof)
    };
    assert_eq!(replied(&mut single, Some(100 << 10)), (96 << 10, false));
    assert_eq!(replied(&mut single, Some(4 << 10)), (4 << 10, false), "some is always returned");
    assert_eq!(replied(&mut single, None), (BLOCK, true));
    // Several calls share the room.
    let before = single.connection.sent_bytes as usize;
    single.send(&read(BLOCK).repeat(4));
    single.turn_with(Some(64 << 10), false);
    let replied = single.connection.sent_bytes as usize + single.connection.stream.queued_bytes() - before;
    assert!((32 << 10..=66 << 10).contains(&replied), "{replied}");
}

#[test]
fn a_reply_that_is_shortened_asks_for_room() {
    let mut single = Single::new();
    let file = single.file();
    let read = nfs(Procedure::Read, &proc::read::Args { file, offset: 0, count: BLOCK });
    let mut shortened = |room| {
        single.send(&read);
        single.turn_with(room, false);
        std::mem::take(&mut single.connection.memory.shortened_bytes)
    };
    assert_eq!([None, Some(2 << 20)].map(&mut shortened), [0, 0]);
    assert!(shortened(Some(100 << 10)) > BLOCK as usize);
}

/// Receives this many bytes of replies as the client.
fn take(single: &mut Single, bytes: u64) {
    let deadline = clock::now() + Duration::from_secs(120);
    let mut left = bytes;
    while left > 0 {
        assert!(clock::now() < deadline, "{left} bytes do not come");
        single.turn(false);
        let there = rustix::io::ioctl_fionread(&single.client).unwrap().min(left);
        let mut room = vec![0; usize::try_from(there).unwrap()];
        (&single.client).read_exact(&mut room).unwrap();
        left -= there;
    }
    single.turn(false);
}

/// What the sockets of both ends hold.
const SOCKET_BYTES: usize = 256 << 10;

#[test]
fn a_client_that_takes_its_replies_too_slowly_may_be_ended_and_one_that_takes_enough_may_not() {
    let mut single = Single::new();
    let file = single.file();
    // Else the system may take everything for a moment.
    SockRef::from(&single.client).set_recv_buffer_size(SOCKET_BYTES).unwrap();
    let server = single.connection.socket().unwrap();
    SockRef::from(&server).set_send_buffer_size(SOCKET_BYTES).unwrap();
    let read = nfs(Procedure::Read, &proc::read::Args { file, offset: 0, count: BLOCK });
    single.send(&read.repeat(40));
    single.turn(false);
    single.connection.settle();
    assert!(single.connection.unsent);
    let start = clock::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let is_overdue = |single: &mut Single, seconds: u64| {
        single.connection.note_reply_pace(at(seconds));
        single.connection.overdue_since(at(seconds)).is_some()
    };
    // A little is taken every 14 seconds, which is slow.
    assert!(!is_overdue(&mut single, 0));
    take(&mut single, 64 << 10);
    assert!(!is_overdue(&mut single, 14));
    take(&mut single, 64 << 10);
    assert!(is_overdue(&mut single, 16));
    // Some megabytes are taken within the next interval.
    take(&mut single, 8 << 20);
    assert!(single.connection.unsent && is_overdue(&mut single, 30), "the interval is not over");
    assert!(!is_overdue(&mut single, 32));
    // What waits for another turn on this loop is not the client's fault.
    single.connection.out_of_budget = true;
    assert!(!is_overdue(&mut single, 60));
    single.connection.out_of_budget = false;
    assert!(!is_overdue(&mut single, 61) && is_overdue(&mut single, 80));
    // The connection is paced: the client takes what it gets.
    single.connection.is_paced = true;
    take(&mut single, 8 << 20);
    assert!(!is_overdue(&mut single, 96), "it takes something");
    assert!(is_overdue(&mut single, 112), "it takes nothing");
}
