//! Tests a server that sends invalid replies: the affected call fails or is sent again, the
//! connection is reset, and all other calls succeed.

#[path = "support/fake.rs"]
mod fake;

use std::time::Duration;

use client::{Answer, Error, Mount, Op, Pending, Settings};
use fake::{
    Fake, Request, TIMEOUT, attributes, block_write, encoded, file, read_results, read_results_with,
    reply_record,
};
use nfs3::proc::create;
use nfs3::{FileHandle, FileType, Procedure, WccData};
use testkit::Deadline;

fn read(mount: &Mount, len: usize) -> Pending {
    mount.submit(Op::Read { file: file(mount), offset: 0, buffer: vec![0; len].into() })
}

/// Two READs are in flight, and the first gets the reply `bad`. A call that is sent again gets a
/// valid reply. Returns the result of the first READ; the second must be right.
fn two_reads(len: usize, bad: impl Fn(&Request)) -> client::Result<Answer> {
    let fake = Fake::start(1);
    // What is dropped as a call of the server is no answer: the call is sent again after `timeo`.
    let settings = Settings { timeo: Duration::from_secs(1), ..fake.settings(1) };
    let mount = Mount::with_settings(settings).unwrap();
    let (first, second) = (read(&mount, len), read(&mount, len));
    let calls = [fake.next(), fake.next()];
    bad(&calls[0]);
    let victim = calls[0].xid;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| (first.wait(), second.wait()));
        while !waiting.is_finished() {
            if let Some(call) = fake.next_within(Duration::from_millis(20)) {
                call.data_read(&vec![if call.xid == victim { 1 } else { 2 }; len]);
            }
        }
        let (first, second) = waiting.join().unwrap();
        assert!(matches!(second.result, Ok(Answer::Read { .. })), "{:?}", second.result);
        assert!(second.buffer == vec![2; len]);
        assert_eq!(first.buffer.len(), len);
        assert!(first.result.is_err() || first.buffer == vec![1; len]);
        first.result
    })
}

#[test]
fn a_read_reply_with_more_data_than_requested_fails_and_no_other_call_does() {
    for len in [100, 4096, 64 << 10, 1 << 20] {
        let result = two_reads(len, |call| call.data_read(&vec![7; len + 4]));
        assert!(matches!(result, Err(Error::PeerMisbehaved { .. })), "{len}: {result:?}");
    }
}

#[test]
fn a_read_reply_with_bytes_after_its_data_is_accepted_and_no_buffer_is_lost() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    for len in [100, 4096, 64 << 10, 1 << 20] {
        for more in [4, 60, 4096] {
            let reads = [read(&mount, len), read(&mount, len)];
            for (call, byte) in [fake.next(), fake.next()].iter().zip(1..) {
                let mut results = read_results(&vec![byte; len]);
                results.resize(results.len() + more, 9);
                call.reply(&results);
            }
            for (read, byte) in reads.into_iter().zip(1..) {
                let done = read.wait();
                assert!(matches!(done.result, Ok(Answer::Read { .. })), "{len} {more}: {:?}", done.result);
                assert!(done.buffer == vec![byte; len], "{len} {more}");
            }
        }
    }
}

#[test]
fn a_read_reply_with_a_false_length_fails_and_no_other_call_does() {
    for len in [100, 64 << 10] {
        for cut in [4, 60] {
            let result = two_reads(len, |call| {
                let results = read_results(&vec![7; len]);
                call.reply(&results[..results.len() - cut]);
            });
            assert!(matches!(result, Err(Error::PeerMisbehaved { .. })), "{len} {cut}: {result:?}");
        }
    }
}

#[test]
fn bytes_that_are_no_reply_end_the_connection_and_no_call_fails() {
    let garbage: [(&str, Vec<u8>); 5] = [
        ("a short record", vec![0x80, 0, 0, 3, 1, 2, 3]),
        ("a call instead of a reply", [&[0x80, 0, 0, 8][..], &[0; 4], &[0; 4]].concat()),
        ("a record without an end in sight", vec![0xff, 0xff, 0xff, 0xff]),
        ("fragments without end", [0, 0, 0, 0].repeat(5_000)),
        ("a large fragment", vec![0x7f, 0xff, 0xff, 0xff]),
    ];
    for (what, bytes) in garbage {
        let result = two_reads(4096, |call| call.raw(&bytes));
        assert!(matches!(result, Ok(Answer::Read { .. })), "{what}: {result:?}");
    }
}

/// A directory is listed, and the server answers that call with `bad` each time. A READ in between
/// must succeed. Returns the error of the listing and the number of its calls.
fn listing_with_bad_replies(bad: impl Fn(u32) -> Vec<u8>) -> (Error, u32) {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let directory = fs::FileHandle::new(b"directory").unwrap();
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| mount.read_directory(directory));
        let (mut tries, mut beside) = (0, Vec::new());
        while !listing.is_finished() {
            match fake.next_within(Duration::from_millis(20)) {
                Some(call) if call.procedure == Procedure::ReadDirPlus => {
                    tries += 1;
                    assert!(tries <= 20, "the call is sent again without end");
                    beside.push(read(&mount, 4096));
                    call.raw(&bad(call.xid));
                }
                Some(call) => call.data_read(&[3; 4096]),
                None => {}
            }
        }
        let answers = scope.spawn(|| beside.into_iter().map(Pending::wait).collect::<Vec<_>>());
        while !answers.is_finished() {
            if let Some(call) = fake.next_within(Duration::from_millis(20)) {
                call.data_read(&[3; 4096]);
            }
        }
        for done in answers.join().unwrap() {
            assert!(done.result.is_ok() && done.buffer == [3; 4096], "{:?}", done.result);
        }
        (listing.join().unwrap().expect_err("no reply can be read"), tries)
    })
}

#[test]
fn a_call_whose_reply_can_never_be_read_fails_after_five_tries_and_no_other_call_does() {
    let mark = |last, len| rpc::record_marking::Mark { last, len }.encode();
    let too_long = |xid: u32| [mark(true, 2 << 20), xid.to_be_bytes(), [0; 4]].concat();
    let too_long_in_parts =
        |xid: u32| [mark(false, 8), xid.to_be_bytes(), [0, 0, 0, 1], mark(false, 2 << 20)].concat();
    let long_part = |xid: u32| [mark(false, 2 << 20), xid.to_be_bytes(), [0; 4]].concat();
    let short = |xid: u32| [mark(true, 8), xid.to_be_bytes(), [0, 0, 0, 1]].concat();
    let fails = |what: &str, reason: &str, bad: &dyn Fn(u32) -> Vec<u8>| {
        let (error, tries) = listing_with_bad_replies(bad);
        assert!(matches!(error, Error::PeerMisbehaved { .. }), "{what}: {error}");
        assert!(error.to_string().contains(reason), "{what}: {error}");
        // A reply that comes when the client has given up its connection counts as no try.
        assert!(tries >= 5, "{what}: {tries}");
    };
    fails("a record that is too long", "the bound is", &too_long);
    fails("a record that is too long, in parts", "the bound is", &too_long_in_parts);
    fails("a first part that is too long", "the bound is", &long_part);
    fails("a record that ends too soon", "ends early", &short);
}

/// A directory is listed, and the server ends the connection at that call each time. With `beside`,
/// a READ in between must succeed each time. Returns the error of the listing and the number of its
/// calls.
fn listing_that_ends_connections(beside: bool) -> (Error, u32) {
    let fake = Fake::start(1);
    let mount =
        Mount::with_settings(Settings { closes_time_min: Duration::ZERO, ..fake.settings(1) }).unwrap();
    let directory = fs::FileHandle::new(b"directory").unwrap();
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| mount.read_directory(directory));
        let (mut tries, mut reads) = (0, Vec::new());
        while !listing.is_finished() {
            match fake.next_within(Duration::from_millis(20)) {
                Some(call) if call.procedure == Procedure::ReadDirPlus => {
                    tries += 1;
                    assert!(tries <= 40, "the call is sent again without end");
                    if beside {
                        reads.push(read(&mount, 4096));
                    }
                    call.cut();
                }
                Some(call) => call.data_read(&[3; 4096]),
                None => {}
            }
        }
        let answers = scope.spawn(|| reads.into_iter().map(Pending::wait).collect::<Vec<_>>());
        while !answers.is_finished() {
            if let Some(call) = fake.next_within(Duration::from_millis(20)) {
                call.data_read(&[3; 4096]);
            }
        }
        for done in answers.join().unwrap() {
            assert!(done.result.is_ok() && done.buffer == [3; 4096], "{:?}", done.result);
        }
        (listing.join().unwrap().expect_err("it is never answered"), tries)
    })
}

#[test]
fn a_call_at_which_the_server_ends_each_connection_fails_after_seven_tries_and_no_other_call_does() {
    for beside in [true, false] {
        let (error, tries) = listing_that_ends_connections(beside);
        assert!(matches!(error, Error::PeerMisbehaved { .. }), "{beside}: {error}");
        assert!(error.to_string().contains("ended the connection"), "{beside}: {error}");
        assert!(tries >= 7, "{beside}: {tries}");
    }
}

#[test]
fn a_server_that_goes_away_in_between_is_waited_for_however_often_it_ends_connections() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let pending = read(&mount, 4096);
    for _ in 0..3 {
        for _ in 0..4 {
            fake.next().cut();
        }
        fake.stop_node(0);
        let accepted = fake.accepted();
        Deadline::wait_until("an attempt to connect in vain", TIMEOUT, || {
            (fake.accepted() > accepted + 1).then_some(())
        });
        fake.start_node(0);
    }
    fake.next().data_read(&[5; 4096]);
    let done = pending.wait();
    assert!(matches!(done.result, Ok(Answer::Read { .. })), "{:?}", done.result);
}

#[test]
fn a_connection_that_breaks_within_a_long_read_gives_the_buffer_back_to_its_call() {
    let len = 1 << 20;
    let result = two_reads(len, |call| {
        let record = reply_record(call.xid, &read_results(&vec![9; len]));
        call.raw(&record[..record.len() / 2]);
        call.cut();
    });
    assert!(matches!(result, Ok(Answer::Read { .. })), "{result:?}");
}

#[test]
fn a_refused_call_fails_alone() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (first, second) = (read(&mount, 4096), read(&mount, 4096));
    let calls = [fake.next(), fake.next()];
    let mut refusal = vec![0; 4];
    rpc::reply::encode_accept(
        &mut xdr::Writer::new(&mut refusal),
        rpc::Xid(calls[0].xid),
        rpc::reply::Accept::SystemErr,
    );
    let len = u32::try_from(refusal.len() - 4).unwrap();
    refusal[..4].copy_from_slice(&rpc::record_marking::Mark { last: true, len }.encode());
    calls[0].raw(&refusal);
    calls[1].data_read(&[2; 4096]);
    assert!(matches!(first.wait().result, Err(Error::Refused { .. })));
    assert!(second.wait().result.is_ok());
}

#[test]
fn replies_to_no_call_are_dropped() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let pending = read(&mount, 64 << 10);
    let call = fake.next();
    call.raw(&reply_record(call.xid ^ 0x2000_0000, &read_results(&[1; 64 << 10])));
    call.raw(&reply_record(call.xid ^ 0x1000_0000, &[]));
    call.data_read(&[5; 64 << 10]);
    // The same reply again: its call has ended.
    call.data_read(&[6; 64 << 10]);
    assert!(pending.wait().buffer == [5; 64 << 10]);
    let pending = read(&mount, 4096);
    let next = fake.next();
    call.data_read(&[6; 4096]);
    next.data_read(&[8; 4096]);
    assert!(pending.wait().buffer == [8; 4096]);
}

#[test]
fn a_reply_to_a_call_that_was_not_sent_yet_ends_the_connection() {
    const LEN: usize = 1 << 20;
    const CALLS: u64 = 24;
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    fake.pause();
    let mut pending: Vec<Pending> =
        (0..CALLS).map(|block| mount.submit(block_write(file, block, LEN))).collect();
    let first = fake.next();
    // No system buffers 24 MiB on one connection here, and xids of WRITEs count upwards, so this
    // call is still queued.
    let forged = first.xid + u32::try_from(CALLS).unwrap() - 1;
    let success = nfs3::proc::write::Success {
        file: nfs3::WccData::default(),
        count: LEN as u32,
        committed: nfs3::proc::write::Stable::FileSync,
        verifier: [1; 8],
    };
    let forged = reply_record(forged, &fake::encoded(&nfs3::proc::write::Reply::Ok(success)));
    // A call that the mount has not begun yet is unknown, and a reply to that call is dropped, so
    // the test repeats the reply. All calls then arrive on another connection, also the call of the
    // forged reply. The test waits for that connection and not for a reset: the system drops a
    // reset that it receives outside of its window, and the window is closed until the socket is
    // read.
    let mut next = Some(Deadline::wait_until("the client to abandon the connection", TIMEOUT, || {
        first.raw(&forged);
        fake.next_within(Duration::from_millis(20))
    }));
    assert!(
        next.as_ref().is_some_and(|next| !next.is_beside(&first)),
        "one call of each connection while the fake is paused"
    );
    first.give_up();
    fake.resume();
    let mut seen = Vec::new();
    while seen.len() < CALLS as usize {
        let call = next.take().unwrap_or_else(|| fake.next());
        if call.procedure == nfs3::Procedure::Commit {
            call.committed(1);
            continue;
        }
        let block = call.write().offset / LEN as u64;
        assert!(call.data() == vec![block as u8 + 1; LEN]);
        call.written(LEN as u32, nfs3::proc::write::Stable::FileSync, 1);
        if !seen.contains(&block) {
            seen.push(block);
        }
    }
    for pending in pending.drain(..) {
        assert!(pending.wait().result.is_ok());
    }
}

/// Reads a file of 100 bytes in blocks of 50. The server answers each READ by its offset and by how
/// often that offset was read before.
fn read_in_blocks(answer: impl Fn(u64, u32) -> Vec<u8>) -> client::Result<u64> {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let handle = file(&mount).handle;
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut blocks = mount.blocks(handle, 0..100, 100, (50, 1));
            let mut read = 0;
            while let Some(block) = blocks.next_block()? {
                read += block.len as u64;
            }
            Ok(read)
        });
        let mut asked = std::collections::HashMap::new();
        while !reading.is_finished() {
            if let Some(call) = fake.next_within(Duration::from_millis(20)) {
                let offset = call.read().offset;
                let times = asked.entry(offset).or_insert(0);
                call.reply(&answer(offset, *times));
                *times += 1;
            }
        }
        reading.join().unwrap()
    })
}

#[test]
fn reads_of_no_bytes_within_a_file_fail_and_name_the_offset() {
    // The fake's files have 1 GiB, whatever a READ says.
    for eof in [false, true] {
        for bad in [0, 50] {
            let result = read_in_blocks(|offset, _| {
                if offset == bad { read_results_with(&[], eof) } else { read_results_with(&[7; 50], false) }
            });
            let error = result.expect_err("the file has more").to_string();
            assert!(error.contains(&format!("no bytes at offset {bad},")), "{eof}: {error}");
        }
        let later = |_, times| read_results_with(if times < 2 { &[] } else { &[7; 50] }, eof);
        assert_eq!(read_in_blocks(later).expect("it answers the third time"), 100, "{eof}");
    }
}

#[test]
fn a_large_read_that_is_answered_with_nothing_within_the_file_fails() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    std::thread::scope(|scope| {
        let reading = scope
            .spawn(|| mount.create_file(b"file", 0o644).and_then(|file| file.read_all_at(&mut [0; 100], 0)));
        while !reading.is_finished() {
            match fake.next_within(Duration::from_millis(20)) {
                Some(call) if call.procedure == Procedure::Create => {
                    let (handle, attributes) =
                        (FileHandle::new(b"file"), Some(attributes(FileType::Regular)));
                    let made = create::Success { object: handle, attributes, directory: WccData::default() };
                    call.reply(&encoded(&create::Reply::Ok(made)));
                }
                Some(call) => call.data_read(&[]),
                None => {}
            }
        }
        let error = reading.join().unwrap().expect_err("the file has more").to_string();
        assert!(error.contains("no bytes at offset 0,"), "{error}");
    });
}
