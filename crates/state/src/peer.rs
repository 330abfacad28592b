//! The addresses that clients come from. Client ids are given to anybody, so the bounds of one
//! client bound nobody: what all clients of one address have together is bounded too. An address at
//! its bound first loses its own clients whose lease has ended, and then costs itself only.
//!
//! Hosts that lock by NLM have a bound of their own.

use crate::arena::{Arena, List, PEERS};
use crate::error::Error;
use crate::layout::Table;
use crate::lease::unconfirmed;
use crate::record::{Kind, Record, client, peer};
use crate::transaction::Transaction;
use crate::words::Words;
use std::net::IpAddr;

impl<W: Words> Arena<W> {
    fn peers(&self, key: u64) -> List {
        self.bucket(Table::Peer, key, peer::BY_KEY)
    }

    /// The address of a client.
    pub fn peer_of(&self, of_client: Record) -> Result<Option<Record>, Error> {
        self.named(of_client, client::PEER, Kind::Peer)
    }
}

impl<W: Words> Transaction<'_, W> {
    /// The record of an address, with one more use.
    pub fn use_peer(&mut self, address: IpAddr) -> Result<Record, Error> {
        let key = match address {
            IpAddr::V4(address) => self.secret.code(PEERS, &address.octets()),
            // One host may have all addresses of its network. RFC 4291 s2.5.1
            IpAddr::V6(address) => {
                self.secret.code(PEERS, address.octets().first_chunk::<8>().unwrap_or(&[0; 8]))
            }
        };
        let known = self.find(self.peers(key), |record| Ok(self.read(record, peer::KEY)? == key))?;
        let record = match known {
            Some(record) => record,
            None => {
                let record = self.allocate(Kind::Peer)?;
                self.write(record, peer::KEY, key)?;
                self.push(self.peers(key), record)?;
                record
            }
        };
        self.count(record, peer::USES, 1)?;
        Ok(record)
    }

    /// Ends a use of an address.
    pub fn release_peer(&mut self, record: Record) -> Result<(), Error> {
        self.count(record, peer::USES, -1)?;
        if self.read(record, peer::USES)? != 0 {
            return Ok(());
        }
        let key = self.read(record, peer::KEY)?;
        self.unlink(self.peers(key), record)?;
        self.free(record)
    }

    /// Makes room for one more client of an address whose id is not confirmed: the oldest such of
    /// the same address gives way.
    pub fn admit_unconfirmed(&mut self, of: Record) -> Result<(), Error> {
        let bound = self.layout.config.bounds.unconfirmed_per_peer();
        if self.read(of, peer::UNCONFIRMED)? < u64::from(bound) {
            return Ok(());
        }
        let oldest = self.find(unconfirmed(), |record| Ok(self.peer_of(record)? == Some(of)))?;
        oldest.map_or(Ok(()), |oldest| self.kill_client(oldest))
    }

    /// Whether the clients of an address may have more records of a kind.
    fn has_room(&self, of: Record, kind: Kind, more: u64) -> Result<bool, Error> {
        let bound = u64::from(self.layout.config.bounds.per_peer(kind));
        Ok(self.read(of, peer::COUNTS + kind as usize)?.saturating_add(more) <= bound)
    }

    /// Whether the clients of an address have less than half of the records of a kind that they may
    /// have.
    pub fn is_half_empty(&self, of: Option<Record>, kind: Kind) -> Result<bool, Error> {
        let Some(of) = of else { return Ok(true) };
        let bound = u64::from(self.layout.config.bounds.per_peer(kind));
        Ok(self.read(of, peer::COUNTS + kind as usize)? * 2 < bound)
    }

    /// Counts more records of an address, within its bound.
    pub fn charge(&mut self, of: Option<Record>, kind: Kind, more: usize) -> Result<(), Error> {
        let Some(of) = of else { return Ok(()) };
        if !self.has_room(of, kind, more as u64)? {
            self.at_limit = Some(of);
            return Err(Error::PeerLimit(kind));
        }
        self.count(of, peer::COUNTS + kind as usize, more as i64)
    }

    /// Counts fewer records of an address.
    pub fn discharge(&mut self, of: Option<Record>, kind: Kind, fewer: usize) -> Result<(), Error> {
        of.map_or(Ok(()), |of| self.count(of, peer::COUNTS + kind as usize, -(fewer as i64)))
    }

    /// Counts one record fewer of a client, and of its address.
    pub fn dismiss(&mut self, of_client: Record, kind: Kind, count: usize) -> Result<(), Error> {
        self.count(of_client, count, -1)?;
        self.discharge(self.peer_of(of_client)?, kind, 1)
    }
}
