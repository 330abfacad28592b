//! Every mode on real connections, ends that fail, and invalid shapes.

use super::*;

fn shape(direction: Direction, block_bytes: usize) -> Shape {
    let remotes = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
    Shape { block_bytes, depth: 4, connections: 3, direction, remotes, traffic: Traffic::Nfs }
}

fn congestion() -> String {
    transport::socket::congestion_controls().remove(0)
}

/// The connected ends of a shape.
fn streams(shape: &Shape) -> Streams {
    let mut streams = Streams::default();
    for address in shape.remotes.iter().cycle().take(shape.connections) {
        let (client, server) = connect(*address, &congestion()).unwrap();
        streams.client.push(client);
        streams.server.push(server);
    }
    streams
}

#[test]
fn every_mode_moves_blocks_in_every_direction() {
    for traffic in [Traffic::Nfs, Traffic::NvmeTcp { in_capsule_bytes: 8192 }] {
        for direction in [Direction::Read, Direction::Write, Direction::Mixed] {
            for mode in Mode::ALL {
                for block_bytes in [4096, 1 << 20] {
                    let shape = Shape { traffic, ..shape(direction, block_bytes) };
                    // The try ends when blocks have moved, however long that takes.
                    let tried = measure_once(&shape, mode, &congestion(), Duration::ZERO).unwrap();
                    assert!(tried.iops > 0.0, "{traffic:?} {direction:?} {mode:?} {block_bytes}");
                }
            }
        }
    }
}

#[test]
fn an_end_that_fails_during_a_try_is_named_with_its_reason() {
    for mode in Mode::ALL {
        let shape = shape(Direction::Read, 4096);
        let streams = streams(&shape);
        streams.server[1].shutdown(std::net::Shutdown::Both).unwrap();
        let Err(error) = measure(&shape, mode, streams, Duration::from_secs(60)) else {
            panic!("{mode:?} measures what is broken");
        };
        let Error::End { connection: 1, source, .. } = &error else { panic!("{mode:?}: {error:?}") };
        assert!(error.to_string().contains(" end of connection 1 failed"), "{error}");
        assert!(!source.to_string().is_empty());
    }
}

#[test]
fn an_address_that_is_not_ours_is_named() {
    let mut foreign = shape(Direction::Read, 4096);
    foreign.remotes = vec![IpAddr::from([203, 0, 113, 9])];
    let error = measure_once(&foreign, Mode::Threads, "reno", Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("203.0.113.9"), "{error}");
}

#[test]
fn a_shape_without_sense_is_refused() {
    let none = Shape { connections: 0, ..shape(Direction::Read, 4096) };
    let nowhere = Shape { remotes: Vec::new(), ..shape(Direction::Read, 4096) };
    let shallow = Shape { depth: 0, ..shape(Direction::Read, 4096) };
    for senseless in [none, nowhere, shallow, shape(Direction::Write, 0)] {
        let refused = measure_once(&senseless, Mode::Threads, "reno", Duration::ZERO);
        assert!(matches!(refused, Err(Error::Shape(_))), "{senseless:?}");
    }
}
