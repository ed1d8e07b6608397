//! Asks the kernel for one socket by its addresses, through netlink (`sock_diag(7)`).
//!
//! The kernel answers within the call that sends the request, so nothing here waits.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recvfrom, sendto, socket_with,
};

use rustix::io::Errno;

use super::{SocketEntry, canonical};

/// The kernel's own address.
const KERNEL: SocketAddrNetlink = SocketAddrNetlink::new(0, 0);

/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// `struct inet_diag_req_v2` with a header.
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// More than `struct inet_diag_msg` with a header; the attributes after it are not requested.
const ANSWER_BYTES: usize = 1024;

/// `SOCK_DIAG_BY_FAMILY`, the type of the request and of the answer.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`, which every request has. Without `NLM_F_DUMP` the request is for one socket.
const REQUEST_FLAG: u16 = 1;
/// The sequence number, which the answer repeats.
const SEQUENCE: u32 = 1;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;

/// The index of the loopback interface in every network namespace.
const LOOPBACK_INTERFACE: u32 = 1;

/// `NLMSG_ERROR`: the kernel has no such socket, or does not answer such requests.
const ERROR: u16 = 2;

/// The socket that is bound to `local` and connected to `peer`; `None` if there is none. Fails if netlink is refused.
pub(super) fn find(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<SocketEntry>> {
    // The first request does not find a socket that is bound to a device. On connections within a machine that is loopback.
    match find_on(local, peer, 0)? {
        Some(entry) => Ok(Some(entry)),
        None => find_on(local, peer, LOOPBACK_INTERFACE),
    }
}

fn find_on(local: SocketAddr, peer: SocketAddr, interface: u32) -> io::Result<Option<SocketEntry>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG))?;
    sendto(&socket, &request(local, peer, interface), SendFlags::empty(), &KERNEL)?;
    let mut buffer = [0; ANSWER_BYTES];
    let (_, count, from) = recvfrom(&socket, &mut buffer, RecvFlags::empty())?;
    if from.map(SocketAddrNetlink::try_from) != Some(Ok(KERNEL)) {
        return Err(io::Error::other("the answer does not come from the kernel"));
    }
    let answer = buffer.get(..count).unwrap_or_default();
    match error_number(answer) {
        Some(number) if number != Errno::NOENT.raw_os_error() => Err(io::Error::from_raw_os_error(number)),
        Some(_) => Ok(None),
        None => Ok(parse(answer, local, peer)),
    }
}

/// The number of an error that the kernel answered with.
fn error_number(answer: &[u8]) -> Option<i32> {
    let mut fields = Fields(answer);
    let _length = fields.number()?;
    let kind = u16::from_ne_bytes(fields.take()?);
    let _rest_of_header: [u8; 10] = fields.take()?;
    let number = i32::from_ne_bytes(fields.take()?);
    (kind == ERROR).then_some(number.saturating_neg())
}

fn request(local: SocketAddr, peer: SocketAddr, interface: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = Vec::with_capacity(REQUEST_BYTES);
    bytes.extend((REQUEST_BYTES as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST_FLAG.to_ne_bytes());
    bytes.extend(SEQUENCE.to_ne_bytes());
    // The port id of our socket, which the kernel fills in.
    bytes.extend(0_u32.to_ne_bytes());
    let family = if local.is_ipv4() && peer.is_ipv4() { AF_INET } else { AF_INET6 };
    // No attributes, and a byte of padding.
    bytes.extend([family, IPPROTO_TCP, 0, 0]);
    // All states: the kernel ignores this filter for a single socket.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(peer.port().to_be_bytes());
    bytes.extend(octets(local.ip(), family));
    bytes.extend(octets(peer.ip(), family));
    bytes.extend(interface.to_ne_bytes());
    // All ones for "no cookie".
    bytes.extend([0xff; 8]);
    bytes.try_into().expect("the fields add up to the size of the message")
}

fn octets(ip: IpAddr, family: u8) -> [u8; 16] {
    match (ip, family) {
        (IpAddr::V4(ip), AF_INET) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&ip.octets());
            octets
        }
        (IpAddr::V4(ip), _) => ip.to_ipv6_mapped().octets(),
        (IpAddr::V6(ip), _) => ip.octets(),
    }
}

/// Parses an answer. None if it is not about the socket with exactly these addresses: without an exact match the kernel
/// returns a listener.
fn parse(answer: &[u8], local: SocketAddr, peer: SocketAddr) -> Option<SocketEntry> {
    let mut fields = Fields(answer);
    let _length = fields.number()?;
    let kind = u16::from_ne_bytes(fields.take()?);
    let _flags: [u8; 2] = fields.take()?;
    let sequence = fields.number()?;
    let _port_id = fields.number()?;
    if kind != BY_FAMILY || sequence != SEQUENCE {
        return None;
    }
    let [family, state, _timer, _retransmits] = fields.take()?;
    let ports = [u16::from_be_bytes(fields.take()?), u16::from_be_bytes(fields.take()?)];
    let ips = [ip(family, fields.take()?)?, ip(family, fields.take()?)?];
    let [_interface, _cookie, _rest_of_it, _expires, _received, _sent, uid, inode] = fields.numbers()?;
    let [found, connected] = [0, 1].map(|end| canonical(SocketAddr::new(ips[end], ports[end])));
    (found == local && connected == peer).then_some(SocketEntry { state, uid, inode: inode.into() })
}

fn ip(family: u8, octets: [u8; 16]) -> Option<IpAddr> {
    let [a, b, c, d, ..] = octets;
    match family {
        AF_INET => Some(Ipv4Addr::new(a, b, c, d).into()),
        AF_INET6 => Some(Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

/// The fields of a message that were not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn numbers<const N: usize>(&mut self) -> Option<[u32; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.number()?;
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, ports: [u16; 2], ips: [[u8; 16]; 2]) -> Vec<u8> {
        let mut bytes = 88_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(SEQUENCE.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend([AF_INET6, 1, 0, 0]);
        ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
        ips.iter().for_each(|ip| bytes.extend(ip));
        [0, 0, 0, 0, 0, 0, 1000, 55_u32].iter().for_each(|number| bytes.extend(number.to_ne_bytes()));
        bytes
    }

    #[test]
    fn an_error_is_told_from_an_answer() {
        let error = |number: i32| {
            let mut bytes = answer(ERROR, [0; 2], [[0; 16]; 2]);
            bytes[HEADER_BYTES..][..4].copy_from_slice(&number.to_ne_bytes());
            error_number(&bytes)
        };
        assert_eq!(error(-2), Some(Errno::NOENT.raw_os_error()));
        assert_eq!(error(-13), Some(Errno::ACCESS.raw_os_error()));
        assert_eq!(error_number(&answer(BY_FAMILY, [1, 2], [[0; 16]; 2])), None);
        assert_eq!(error_number(&[]), None);
    }

    #[test]
    fn only_an_answer_about_the_requested_socket_is_accepted() {
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        let [local, peer] = ["127.0.0.1:4000", "127.0.0.1:80"].map(|end| end.parse::<SocketAddr>().unwrap());
        let right = answer(BY_FAMILY, [4000, 80], [mapped, mapped]);
        assert_eq!(parse(&right, local, peer), Some(SocketEntry { state: 1, uid: 1000, inode: 55 }));
        // A listener has no peer, an error has another message type, and a truncated answer is incomplete.
        assert_eq!(parse(&answer(BY_FAMILY, [4000, 0], [mapped, [0; 16]]), local, peer), None);
        assert_eq!(parse(&answer(ERROR, [4000, 80], [mapped, mapped]), local, peer), None);
        for length in 0..right.len() {
            assert_eq!(parse(&right[..length], local, peer), None, "{length}");
        }
    }
}
