//! Tests files through a mount of our own server: written over every path, read back, and still
//! present when a node stops.

#[path = "support/group.rs"]
mod group;

use std::net::IpAddr;

use client::{Answer, Error, Mount, MountError, Settings};
use fs::{SetAttributes, Status};
use group::{pattern, write_and_read_back};
use server::{Config, NodeId, Server};

fn serve(nodes: u8) -> (Server, Vec<IpAddr>, u16) {
    group::serve(nodes, |listens| Config::quick(512 << 20, "/export", listens))
}

fn settings(addresses: &[IpAddr], port: u16, nconnect: u16) -> Settings {
    Settings {
        remotes: addresses.iter().copied().map(Into::into).collect(),
        nconnect,
        ..Settings::new(addresses[0], port, "/export")
    }
}

#[test]
fn data_written_over_four_nodes_reads_back() {
    let (_server, addresses, port) = serve(4);
    write_and_read_back(&Mount::with_settings(settings(&addresses, port, 8)).unwrap(), b"/data");
}

#[test]
fn small_reads_and_writes_at_odd_offsets_agree_with_a_model() {
    let (_server, addresses, port) = serve(2);
    let mount = Mount::with_settings(settings(&addresses, port, 2)).unwrap();
    let file = mount.create_file(b"odd", 0o600).unwrap();
    let mut model = vec![0_u8; 200_000];
    for step in 0..200_usize {
        let (at, len) = (step * 7919 % 150_000, step * 104_729 % 50_000);
        let data = pattern(len, step as u8);
        file.write_all_at(&data, at as u64).unwrap();
        model[at..at + len].copy_from_slice(&data);
    }
    let size = file.attributes().unwrap().size as usize;
    let mut back = vec![0; size];
    file.read_all_at(&mut back, 0).unwrap();
    assert!(back == model[..size]);
}

/// Tests READs in flight, which swap their buffers.
#[test]
fn reads_of_many_lengths_in_flight_each_get_their_own_data_in_a_buffer_of_their_length() {
    let (_server, addresses, port) = serve(1);
    let mount = Mount::with_settings(settings(&addresses, port, 1)).unwrap();
    let file = mount.create_file(b"lengths", 0o600).unwrap();
    let data = pattern(1 << 20, 3);
    file.write_all_at(&data, 0).unwrap();
    let lengths = [0, 1, 4096, 4096, 60_000, 65_536, 65_536, 200_000];
    let reads: Vec<_> = (0..400_usize)
        .map(|step| {
            let (at, len) = (step * 104_729 % (1 << 20), lengths[step % lengths.len()]);
            (at, len, file.read_at(vec![0; len], at as u64))
        })
        .collect();
    for (at, len, read) in reads {
        let done = read.wait();
        let Ok(Answer::Read { count, .. }) = done.result else { panic!("{:?}", done.result) };
        let expected = &data[at..(at + len).min(data.len())];
        assert_eq!((done.buffer.len(), count as usize), (len, expected.len()));
        assert!(done.buffer[..expected.len()] == *expected, "{len} bytes at {at}");
    }
}

#[test]
fn the_tree_can_be_built_listed_and_taken_down() {
    let (_server, addresses, port) = serve(1);
    let mount = Mount::with_settings(settings(&addresses, port, 1)).unwrap();
    let root = mount.root();
    let (directory, _) = mount.make_directory(root, b"directory", SetAttributes::mode(0o755)).unwrap();
    for n in 0..1500 {
        mount.create_file(format!("/directory/file {n}").as_bytes(), 0o644).unwrap();
    }
    assert_eq!(mount.read_directory(directory).unwrap().len(), 1500);
    mount.make_symlink(root, b"link", b"directory/file 7").unwrap();
    let (through_link, _) = mount.resolve(b"/link").unwrap();
    let (directly, _) = mount.resolve(b"/directory/file 7").unwrap();
    assert_eq!(through_link.as_slice(), directly.as_slice());
    mount.rename((directory, b"file 7"), (root, b"seven")).unwrap();
    mount.link(directly, directory, b"again").unwrap();
    assert_eq!(mount.attributes(directly).unwrap().nlink, 2);
    let error = mount.remove_directory(root, b"directory").unwrap_err();
    assert_eq!(error.status(), Some(Status::NotEmpty));
    for entry in mount.read_directory(directory).unwrap() {
        mount.remove(directory, &entry.name).unwrap();
    }
    mount.remove_directory(root, b"directory").unwrap();
    assert_eq!(mount.resolve(b"/directory").unwrap_err().status(), Some(Status::NotFound));
}

#[test]
fn no_call_fails_when_nodes_stop_under_load() {
    let (server, addresses, port) = serve(4);
    let mount = Mount::with_settings(settings(&addresses, port, 8)).unwrap();
    let file = mount.create_file(b"/data", 0o644).unwrap();
    let data = pattern(16 << 20, 3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for node in [0, 1, 2] {
                server.stop_node(NodeId(node)).unwrap();
                server.start_node(NodeId(node)).unwrap();
            }
            server.stop_node(NodeId(3)).unwrap();
        });
        for _ in 0..8 {
            file.write_all_at(&data, 0).unwrap();
            let mut back = vec![0; data.len()];
            file.read_all_at(&mut back, 0).unwrap();
            assert!(back == data);
        }
    });
}

#[test]
fn a_mount_that_is_read_only_refuses_changes_and_reads() {
    let (_server, addresses, port) = serve(1);
    let target = format!("nfs://{}:{port}/export", addresses[0]);
    let writable = Mount::connect(&target, "nconnect=2").unwrap();
    writable.create_file(b"file", 0o644).unwrap().write_all_at(b"content", 0).unwrap();
    let mount = Mount::connect(&target, "ro,nconnect=2").unwrap();
    let file = mount.open(b"file").unwrap();
    let mut back = [0; 7];
    assert_eq!(file.read_all_at(&mut back, 0).unwrap(), 7);
    assert_eq!(&back, b"content");
    assert_eq!(file.write_all_at(b"other", 0).unwrap_err().status(), Some(Status::ReadOnly));
    assert_eq!(mount.remove(mount.root(), b"file").unwrap_err().status(), Some(Status::ReadOnly));
}

#[test]
fn an_error_names_the_export_that_does_not_exist() {
    let (_server, addresses, port) = serve(1);
    let mut wrong = settings(&addresses, port, 1);
    wrong.export = "/nothing".into();
    let error = Mount::with_settings(wrong).unwrap_err();
    let Error::Mount { cause: MountError::Refused { export, .. }, .. } = error else { panic!("{error:?}") };
    assert_eq!(export, "/nothing");
}

#[test]
fn a_port_without_a_listener_is_an_error_at_once() {
    let (server, addresses, port) = serve(1);
    drop(server);
    let error = Mount::with_settings(settings(&addresses, port, 1)).unwrap_err();
    assert!(matches!(error, Error::Mount { cause: MountError::Connect { .. }, .. }), "{error:?}");
}
