//! What the number of a user means here: inside of a user namespace, less than elsewhere.

use std::fs::read_to_string;

use super::PeerUser;

/// All users of the machine, each under its own number.
const EVERYBODY: [&str; 3] = ["0", "0", "4294967295"];

/// The number of every user who has none here, if the kernel does not say otherwise.
const OVERFLOW_UID: u32 = 65_534;

/// The user namespace of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    /// Numbers mean what they mean to the kernel.
    Initial,
    /// A container: some users of the machine have a number here, which may be any, and all others share one.
    Nested { overflow: u32 },
}

impl Namespace {
    /// That of this process. A process can leave it, so it is looked at each time; it takes microseconds.
    pub(super) fn now() -> Self {
        let map = read_to_string("/proc/self/uid_map").unwrap_or_default();
        if is_whole(&map) {
            return Self::Initial;
        }
        let overflow = read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        Self::Nested { overflow: overflow.trim().parse().unwrap_or(OVERFLOW_UID) }
    }

    /// Whom `uid`, which the kernel told, is to a process of user `own`.
    pub(super) fn judge(self, uid: u32, own: u32) -> PeerUser {
        match self {
            Self::Nested { overflow } if uid == overflow => {
                PeerUser::Unknown("its user has no number in this user namespace")
            }
            // Root of a container is whoever has made it.
            Self::Nested { .. } if uid == 0 && own != 0 => {
                PeerUser::Unknown("root of this user namespace is not root of the machine")
            }
            Self::Initial | Self::Nested { .. } if uid == own => PeerUser::Ours,
            Self::Initial if uid == 0 => PeerUser::Root,
            Self::Initial | Self::Nested { .. } => PeerUser::Other(uid),
        }
    }
}

fn is_whole(map: &str) -> bool {
    let mut lines = map.lines();
    let first: Vec<&str> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
    first == EVERYBODY && lines.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_containers_every_number_is_a_user() {
        let judge = |uid| Namespace::Initial.judge(uid, 1000);
        assert_eq!((judge(1000), judge(0)), (PeerUser::Ours, PeerUser::Root));
        assert_eq!(judge(OVERFLOW_UID), PeerUser::Other(OVERFLOW_UID));
        assert_eq!(Namespace::Initial.judge(OVERFLOW_UID, OVERFLOW_UID), PeerUser::Ours);
    }

    #[test]
    fn in_a_container_strangers_and_its_root_are_not_known() {
        let inside = Namespace::Nested { overflow: 65_534 };
        assert_eq!(inside.judge(1000, 1000), PeerUser::Ours);
        assert_eq!(inside.judge(1001, 1000), PeerUser::Other(1001));
        for (uid, own) in [(0, 1000), (65_534, 1000), (65_534, 65_534)] {
            assert!(matches!(inside.judge(uid, own), PeerUser::Unknown(_)), "{uid} {own}");
        }
    }

    #[test]
    fn a_map_is_whole_if_nobody_is_missing_in_it() {
        assert!(is_whole("         0          0 4294967295\n"));
        for map in ["", "0 1000 1\n", "0 0 65536\n", "0 0 4294967295\n5 5 1\n", "1 0 4294967295\n"] {
            assert!(!is_whole(map), "{map:?}");
        }
    }
}
