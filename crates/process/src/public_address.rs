//! Tells public addresses from those of this machine and of private networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to the public internet.
pub fn is_public_address(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_reserved = a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    // A public address at which Azure serves the secrets of its virtual machines.
    let is_metadata = ip == Ipv4Addr::new(168, 63, 129, 16);
    !(is_reserved
        || is_metadata
        || ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation())
}

/// All allocated addresses, except ranges that embed IPv4 addresses or are reserved.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [a, b, ..] = ip.segments();
    let is_allocated = a & 0xe000 == 0x2000;
    let is_special = a == 0x2001 && (b < 0x0200 || b == 0x0db8) || a == 0x2002 || a == 0x3fff;
    is_allocated && !is_special
}
