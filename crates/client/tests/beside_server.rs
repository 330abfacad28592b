//! A loop whose server is on the same machine takes turns with it while much is written, and only then.

#[path = "support/fake.rs"]
mod fake;

use std::time::{Duration, Instant};

use client::{Op, Pending};
use fake::{Fake, block_write, file};

const BLOCK: usize = 64 << 10;
const CALLS: u64 = 8;

/// Whether the loop of the only mount here takes turns (SCHED_BATCH). The 41st field of proc_pid_stat(5) is the policy; the
/// second is the thread's name in brackets.
fn takes_turns() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let stats =
        threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).ok());
    let of_loop = stats.filter_map(|stat| Some(stat.split_once("(tl-mount-0) ")?.1.to_owned())).next();
    of_loop.expect("the mount has a loop").split_whitespace().nth(38) == Some("3")
}

fn wait_until(what: &str, mut met: impl FnMut() -> bool) {
    let began = Instant::now();
    while !met() {
        assert!(began.elapsed() < fake::PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_loop_takes_turns_while_much_is_written_and_no_longer() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    let read = |len| {
        let pending = mount.submit(Op::Read { file, offset: 0, buffer: vec![0; len] });
        fake.next().data_read(&vec![1; len]);
        assert!(pending.wait().result.is_ok());
    };
    read(1 << 20);
    assert!(!takes_turns(), "nothing is written");
    let writes: Vec<Pending> =
        (0..CALLS).map(|block| mount.submit(block_write(file, block, BLOCK))).collect();
    let calls = fake.next_writes(CALLS as usize);
    wait_until("it takes turns", takes_turns);
    for call in calls {
        call.written(BLOCK as u32, nfs3::proc::write::Stable::FileSync, 1);
    }
    assert!(writes.into_iter().all(|write| write.wait().result.is_ok()));
    wait_until("it takes no more turns", || {
        read(4096);
        !takes_turns()
    });
}
