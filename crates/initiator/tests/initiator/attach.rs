//! Attaching, and what is read and written.

use crate::fixture::wait_for_paths;
use crate::fixture::{
    HOST, PATIENCE, SUBSYSTEM, VOLUME_BYTES, attach, config, nqn, target, target_with, volume,
};
use drives::Fault;
use initiator::{Address, Attachment, Digests, Error, HostId, Operation, discover};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use target::{Access, Export, Node};
use volumes::testing::{Operations, faulty_volume};
use volumes::{BlockSize, Identity};

#[test]
fn what_was_written_is_read_in_all_sizes_with_and_without_digests() {
    let target = target();
    for digests in [Digests::default(), Digests { header: true, data: true }] {
        let mut config = config(target.addresses().to_vec());
        config.digests = digests;
        let (attachment, volume) = attach(config);
        let mut random = fastrand::Rng::with_seed(3);
        for blocks in [1, 2, 3, 16, 255, 256, 257, 700, 2048] {
            let mut data = vec![0; blocks * 4096];
            random.fill(&mut data);
            let offset = 4096 * random.u64(0..4096);
            volume.write(offset, data.clone()).unwrap();
            assert!(volume.read(offset, data.len()).unwrap() == data, "{blocks} blocks");
        }
        volume.flush().unwrap();
        drop(attachment);
    }
}

#[test]
fn zeroes_and_deallocated_blocks_read_as_zeroes_and_their_neighbours_stay() {
    let target = target();
    let (_attachment, volume) = attach(config(target.addresses().to_vec()));
    assert!(volume.namespace().write_zeroes && volume.namespace().deallocate);
    let zeroes =
        |offset, bytes, deallocate| Operation::WriteZeroes { offset, bytes, deallocate, durable: true };
    for operation in [
        zeroes(1 << 20, 3 << 20, false),
        zeroes(1 << 20, 3 << 20, true),
        Operation::Deallocate { offset: 1 << 20, bytes: 3 << 20 },
    ] {
        volume.write(0, vec![7; 5 << 20]).unwrap();
        volume.execute(operation).unwrap();
        let data = volume.read(0, 5 << 20).unwrap();
        let is = |range: std::ops::Range<usize>, byte| data[range].iter().all(|one| *one == byte);
        assert!(is(0..1 << 20, 7) && is(1 << 20..4 << 20, 0) && is(4 << 20..5 << 20, 7));
    }
}

#[test]
fn a_subsystem_may_have_more_namespaces_than_its_admin_queue_has_entries() {
    const COUNT: u32 = 200;
    let export = |nsid: u32| {
        let drive = target::Drive::memory(1 << 20, 1 << 20);
        let identity = Identity::of_uuid([nsid as u8; 16]);
        let volume = target::Volume::new("v", identity, &drive, Some(BlockSize::B4096)).unwrap();
        Export { nsid, volume, hosts: Access::Any, owner: Node::A }
    };
    let exports: Vec<Export> = (1..=COUNT).map(export).collect();
    let target = target_with(Access::Any, &exports);
    let attachment = Attachment::start(config(target.addresses().to_vec())).unwrap();
    for nsid in [1, 31, 32, 33, COUNT] {
        let volume = attachment.volume(Some(nsid), PATIENCE).unwrap();
        volume.write(0, vec![nsid as u8; 4096]).unwrap();
        assert!(volume.read(0, 4096).unwrap() == vec![nsid as u8; 4096], "{nsid}");
    }
    wait_for_paths(&attachment, 2);
}

#[test]
fn many_operations_at_once_do_not_mix_and_overlapping_writes_keep_their_order() {
    let target = target();
    let (attachment, volume) = attach(config(target.addresses().to_vec()));
    wait_for_paths(&attachment, 2);
    let (reply, completions) = channel();
    // Every block is written many times; the last one must win.
    let (rounds, blocks) = (20_u64, 64_u64);
    for round in 0..rounds {
        for block in 0..blocks {
            let data = Arc::new(vec![(round + block) as u8; 4096]);
            let operation = Operation::Write { offset: block * 4096, data, durable: false };
            volume.submit(operation, round * blocks + block, &reply);
        }
    }
    for _ in 0..rounds * blocks {
        completions.recv_timeout(PATIENCE).unwrap().result.unwrap();
    }
    for block in 0..blocks {
        let operation = Operation::Read { offset: block * 4096, memory: vec![0; 4096] };
        volume.submit(operation, block, &reply);
    }
    let mut seen = BTreeMap::new();
    for _ in 0..blocks {
        let completion = completions.recv_timeout(PATIENCE).unwrap();
        let data = completion.result.unwrap();
        assert!(data.iter().all(|byte| *byte == data[0]));
        seen.insert(completion.cookie, data[0]);
    }
    assert!(seen.iter().all(|(block, byte)| *byte == (rounds - 1 + block) as u8), "{seen:?}");
}

#[test]
fn what_is_outside_of_the_volume_or_its_blocks_is_refused() {
    let target = target();
    let (_attachment, volume) = attach(config(target.addresses().to_vec()));
    for (offset, bytes) in [(1, 4096), (0, 100), (0, 0), (VOLUME_BYTES, 4096), (VOLUME_BYTES - 4096, 8192)] {
        assert!(matches!(volume.read(offset, bytes), Err(Error::OutOfRange { .. })), "{offset} {bytes}");
    }
    assert!(matches!(volume.read(u64::MAX - 4095, 4096), Err(Error::OutOfRange { .. })));
}

/// Whichever connection and queue they took.
#[test]
fn a_flush_makes_all_durable_that_was_acknowledged_before_it() {
    let (volume, faults) = faulty_volume(64, BlockSize::B4096, true);
    let target = target_with(Access::Any, &[Export { nsid: 1, volume, hosts: Access::Any, owner: Node::A }]);
    let (attachment, volume) = attach(config(target.addresses().to_vec()));
    wait_for_paths(&attachment, 2);
    let (reply, done) = channel();
    for block in 0..32 {
        let data = Arc::new(vec![block as u8 + 1; 4096]);
        volume.submit(Operation::Write { offset: block * 4096, data, durable: false }, block, &reply);
    }
    (0..32).for_each(|_| _ = done.recv_timeout(PATIENCE).unwrap().result.unwrap());
    volume.flush().unwrap();
    let durable = Operation::Write { offset: 32 * 4096, data: Arc::new(vec![33; 4096]), durable: true };
    volume.execute(durable).unwrap();
    volume.write(33 * 4096, vec![34; 4096]).unwrap();
    faults.cut_power(1);
    for block in 0..33 {
        assert!(volume.read(block * 4096, 4096).unwrap() == [block as u8 + 1; 4096], "block {block}");
    }
}

/// A drive that has lost what it was to make durable says so once: the next flush succeeds, and
/// would stand for data that are gone.
#[test]
fn a_flush_that_has_failed_is_not_repeated() {
    let (volume, faults) = faulty_volume(64, BlockSize::B4096, true);
    let target = target_with(Access::Any, &[Export { nsid: 1, volume, hosts: Access::Any, owner: Node::A }]);
    let (_attachment, volume) = attach(config(target.addresses().to_vec()));
    volume.write(0, vec![1; 4096]).unwrap();
    for kind in [Operations::Writes, Operations::Flushes] {
        faults.fail_next(kind, Fault::Io(5));
    }
    volume.write(4096, vec![1; 4096]).expect("it writes its own data again");
    let failed = volume.flush();
    assert!(matches!(failed, Err(Error::Command(_))), "{failed:?}");
    volume.flush().unwrap();
}

#[test]
fn refused_hosts_missing_namespaces_and_wrong_names_are_told_apart() {
    let allowed = Access::Only([nqn(HOST)].into());
    let target = target_with(
        allowed,
        &[Export { nsid: 3, volume: volume(1), hosts: Access::Any, owner: target::Node::A }],
    );
    let addresses = target.addresses().to_vec();

    let attachment = Attachment::start(config(addresses.clone())).unwrap();
    assert!(attachment.volume(None, PATIENCE).unwrap().namespace().nsid == 3);
    // Without waiting for what is not there.
    let error = attachment.volume(Some(9), std::time::Duration::from_secs(3600)).unwrap_err();
    assert_eq!(error, Error::NoNamespace { nsid: 9, present: vec![3] });

    let mut stranger = config(addresses.clone());
    stranger.host = nqn("nqn.2026-11.test:stranger");
    let error = Attachment::start(stranger).unwrap().volume(None, PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");

    let mut other = config(addresses);
    other.subsystem = nqn("nqn.2026-11.test:other");
    let error = Attachment::start(other).unwrap().volume(None, PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[test]
fn discovery_lists_the_subsystem_with_all_addresses() {
    let target = target();
    let found = discover(target.addresses()[0], &nqn(HOST), HostId([7; 16]), PATIENCE).unwrap();
    assert_eq!(found.len(), 1);
    let addresses: Vec<Address> = target.addresses().iter().copied().map(Address::from).collect();
    assert_eq!((found[0].subsystem.as_str(), &found[0].addresses), (SUBSYSTEM, &addresses));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = discover(nobody, &nqn(HOST), HostId([7; 16]), PATIENCE).unwrap_err();
    assert!(matches!(error, Error::NoDiscovery { .. }), "{error}");
}
