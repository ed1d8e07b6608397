//! Finds a socket by its addresses in `/proc/self/net/tcp` and `tcp6`, for systems where netlink is refused.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{LISTEN, SocketEntry, canonical};

/// How many bytes of a table are read. A line has some 150 bytes, so this is enough for a hundred thousand sockets.
pub const PROC_NET_BYTES: u64 = 16 << 20;

/// The tables of this network namespace. An IPv6 socket with an IPv4 address is in the second one.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// The one socket that is bound to `local` and connected to `peer`. None if there is none, or more than one.
pub(super) fn find(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<SocketEntry>> {
    let mut found = Vec::new();
    for table in TABLES {
        match File::open(table) {
            Ok(table) => search(table, local, peer, &mut found)?,
            // A kernel without IPv6 has no second table.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // Sockets that are bound to devices can have the same addresses, and then the right one cannot be told.
    Ok(match found.as_slice() {
        [one] => Some(*one),
        [] | [_, _, ..] => None,
    })
}

/// All sockets that accept connections to `address`.
pub(super) fn listeners(address: SocketAddr) -> io::Result<Vec<SocketEntry>> {
    let mut found = Vec::new();
    for table in TABLES {
        match File::open(table) {
            Ok(table) => for_each_socket(table, |[local, _], entry| {
                let has_ip = local.ip() == address.ip() || local.ip().is_unspecified();
                if entry.state == LISTEN && local.port() == address.port() && has_ip {
                    found.push(entry);
                }
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn search(
    table: impl Read,
    local: SocketAddr,
    peer: SocketAddr,
    found: &mut Vec<SocketEntry>,
) -> io::Result<()> {
    for_each_socket(table, |ends, entry| {
        if ends == [local, peer] {
            found.push(entry);
        }
    })
}

/// Calls `visit` with the local and the peer address of each socket of a table. Fails if the table is longer than
/// [`PROC_NET_BYTES`].
fn for_each_socket(table: impl Read, mut visit: impl FnMut([SocketAddr; 2], SocketEntry)) -> io::Result<()> {
    let mut table = BufReader::new(table.take(PROC_NET_BYTES));
    let mut line = String::new();
    let mut read = 0;
    loop {
        line.clear();
        match table.read_line(&mut line)? {
            0 if read >= PROC_NET_BYTES => {
                return Err(io::Error::new(ErrorKind::FileTooLarge, "the table of sockets is too long"));
            }
            0 => return Ok(()),
            count => read += count as u64,
        }
        if let Some((ends, entry)) = parse(&line) {
            visit(ends, entry);
        }
    }
}

/// Parses a line such as
/// `0: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000  0 12345 …`.
fn parse(line: &str) -> Option<([SocketAddr; 2], SocketEntry)> {
    let mut columns = line.split_ascii_whitespace().skip(1);
    let ends = [parse_address(columns.next()?)?, parse_address(columns.next()?)?];
    let state = u8::from_str_radix(columns.next()?, 16).ok()?;
    // Skip the queues, the timer and the retransmissions.
    let uid = columns.nth(3)?.parse().ok()?;
    let inode = columns.nth(1)?.parse().ok()?;
    Some((ends, SocketEntry { state, uid, inode }))
}

/// Parses an address, which the kernel writes as 32-bit words in the byte order of the machine.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| {
        let digits = ip.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (index, chunk) in octets.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            Ipv6Addr::from(octets).into()
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns for queues, timer and retransmissions.
    const OTHER_COLUMNS: &str = "00000000:00000000 00:00000000 00000000";

    fn searched(table: &str) -> Vec<SocketEntry> {
        let [local, peer] = ["127.0.0.1:8080", "127.0.0.1:40000"].map(|end| end.parse().unwrap());
        let mut found = Vec::new();
        search(table.as_bytes(), local, peer, &mut found).unwrap();
        found
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_line_is_found_by_both_of_its_addresses_in_either_table() {
        let v4 = format!(
            "   1: 0100007F:1F90 0100007F:9C40 01 {OTHER_COLUMNS}  1000        0 12345 1 0 20 4 30 10 -1\n"
        );
        let mapped = "0000000000000000FFFF00000100007F";
        let v6 = format!("   1: {mapped}:1F90 {mapped}:9C40 05 {OTHER_COLUMNS}  1001        0 99 1\n");
        assert_eq!(searched(&v4), [SocketEntry { state: 1, uid: 1000, inode: 12345 }]);
        assert_eq!(searched(&v6), [SocketEntry { state: 5, uid: 1001, inode: 99 }]);
        assert_eq!(searched(&format!("{v4}{v6}")).len(), 2);
        let other = v4.replace("9C40", "9C41");
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";
        assert_eq!(searched(&format!("{head}{other}\nnonsense\n 1: x\n")), []);
    }

    #[test]
    fn a_table_that_is_too_long_is_an_error() {
        let [local, peer] = ["127.0.0.1:1", "127.0.0.1:2"].map(|end| end.parse().unwrap());
        let line = format!("{:149}\n", "");
        let lines = |bytes: u64| line.repeat(bytes as usize / line.len() + 1);
        assert!(search(lines(PROC_NET_BYTES).as_bytes(), local, peer, &mut Vec::new()).is_err());
        assert!(search(lines(PROC_NET_BYTES / 2).as_bytes(), local, peer, &mut Vec::new()).is_ok());
    }
}
