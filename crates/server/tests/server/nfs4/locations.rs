//! `fs_locations`: where the group is besides. RFC 8881 s11.16

use super::client::{Client, after_sequence, config_with_4, put, start_with};
use super::stores::restartable;
use fs::FileHandle;
use nfs4::op::{self, Args, kind};
use nfs4::types::attributes::number;
use nfs4::{Bitmap, Status};
use server::Config;
use std::net::{IpAddr, SocketAddr};
use testkit::free_port;

/// The root as `/a/b`, and the servers of each location.
type Found = (String, Vec<Vec<String>>);

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn locations(client: &mut Client, handle: FileHandle) -> Found {
    let get = Args::GetAttr(op::getattr::Args { wanted: Bitmap::of(&[number::FS_LOCATIONS]) });
    let results = client.send(|to| _ = to.push(&put(handle)).push(&get));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    let got = reader.expect::<kind::GetAttr>().unwrap().unwrap().attributes.parse().unwrap();
    let found = got.fs_locations.unwrap();
    let path = |names: nfs4::Pathname<'_>| names.iter().map(|name| format!("/{}", text(name))).collect();
    let root: String = path(found.root);
    let servers = found.locations.iter().map(|location| {
        assert_eq!(path(location.root), root, "the same place on each server");
        location.servers.iter().map(text).collect()
    });
    (root.clone(), servers.collect())
}

fn at(hosts: std::ops::RangeInclusive<u8>, port: u16) -> Vec<SocketAddr> {
    hosts.map(|host| (IpAddr::from([127, 0, 0, host]), port).into()).collect()
}

fn listening(config: Config, listen: Vec<SocketAddr>) -> Config {
    let mut config = config;
    config.nodes[0].listen = listen;
    config
}

#[test]
fn a_client_learns_the_other_addresses_of_its_server() {
    let port = free_port();
    let (_server, address) = start_with(listening(config_with_4(), at(1..=13, port)));
    let mut client = Client::new(address, "locations");
    let (export, root) = (client.export(), client.walk(&[]).unwrap());
    let (path, servers) = locations(&mut client, export);
    assert_eq!(path, "/export");
    let expected: Vec<_> = (2..=13).map(|host| format!("127.0.0.{host}")).collect();
    assert_eq!(servers, [expected[..10].to_vec(), expected[10..].to_vec()]);
    // What is above the exports is nowhere else.
    assert_eq!(locations(&mut client, root), (String::new(), Vec::new()));
    let mut other = Client::new(at(7..=7, port)[0], "other");
    assert_eq!(locations(&mut other, export).1[0][..2], ["127.0.0.1", "127.0.0.2"]);
}

#[test]
fn the_addresses_of_the_other_processes_are_among_them() {
    let home = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = |host| {
        let config = Config { group: Some(home.path().join("group")), ..restartable(home.path()) };
        listening(config, at(host..=host, port))
    };
    let (_one, address) = start_with(config(1));
    let mut client = Client::new(address, "locations");
    let export = client.export();
    assert_eq!(locations(&mut client, export).1, [[""; 0]; 0], "there is no other");
    let _two = start_with(config(2));
    assert_eq!(locations(&mut client, export).1, [["127.0.0.2"]]);
}

#[test]
fn it_is_compared_and_cannot_be_set() {
    let (_server, address) = start_with(config_with_4());
    let mut client = Client::new(address, "set");
    let export = client.export();
    let fs_locations = Some(nfs4::Locations::default());
    let attributes = nfs4::Attributes { fs_locations, ..Default::default() };
    let attributes = nfs4::Fattr::all(&attributes);
    let same = Args::NVerify(op::verify::NotArgs { attributes });
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&same)), Status::OK);
    let set = Args::SetAttr(op::getattr::SetArgs { stateid: nfs4::Stateid::ANONYMOUS, attributes });
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&set)), Status::INVAL);
}
