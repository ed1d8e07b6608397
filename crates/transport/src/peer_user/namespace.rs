//! What a user id means in the user namespace of this process.

use std::fs::read_to_string;

use super::PeerUser;

/// The `uid_map` of the initial namespace: all user ids are mapped to themselves.
const IDENTITY_MAP: [&str; 3] = ["0", "0", "4294967295"];

/// The default id that the kernel shows for users who have no id in this namespace.
const OVERFLOW_UID: u32 = 65_534;

/// The user namespace of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    /// User ids are the machine's own.
    Initial,
    /// A container: some users of the machine are mapped to other ids, and all others show up as `overflow`.
    Nested { overflow: u32 },
}

impl Namespace {
    /// The current namespace of this process. A process can change its namespace, so this is read on each call; it takes
    /// microseconds.
    pub(super) fn current() -> Self {
        let map = read_to_string("/proc/self/uid_map").unwrap_or_default();
        if is_identity(&map) {
            return Self::Initial;
        }
        let overflow = read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        Self::Nested { overflow: overflow.trim().parse().unwrap_or(OVERFLOW_UID) }
    }

    /// The user with the id `uid`, as the kernel reported it, seen from a process of user `own`.
    pub(super) fn user_of(self, uid: u32, own: u32) -> PeerUser {
        match self {
            Self::Nested { overflow } if uid == overflow => {
                PeerUser::Unknown("its user has no number in this user namespace")
            }
            // Root of a container is the user who made it.
            Self::Nested { .. } if uid == 0 && own != 0 => {
                PeerUser::Unknown("root of this user namespace is not root of the machine")
            }
            Self::Initial | Self::Nested { .. } if uid == own => PeerUser::Ours,
            Self::Initial if uid == 0 => PeerUser::Root,
            Self::Initial | Self::Nested { .. } => PeerUser::Other(uid),
        }
    }
}

fn is_identity(map: &str) -> bool {
    let mut lines = map.lines();
    let first: Vec<&str> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
    first == IDENTITY_MAP && lines.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_containers_every_id_is_a_user() {
        let user_of = |uid| Namespace::Initial.user_of(uid, 1000);
        assert_eq!((user_of(1000), user_of(0)), (PeerUser::Ours, PeerUser::Root));
        assert_eq!(user_of(OVERFLOW_UID), PeerUser::Other(OVERFLOW_UID));
        assert_eq!(Namespace::Initial.user_of(OVERFLOW_UID, OVERFLOW_UID), PeerUser::Ours);
    }

    #[test]
    fn in_a_container_unmapped_users_and_its_root_are_unknown() {
        let inside = Namespace::Nested { overflow: 65_534 };
        assert_eq!(inside.user_of(1000, 1000), PeerUser::Ours);
        assert_eq!(inside.user_of(1001, 1000), PeerUser::Other(1001));
        for (uid, own) in [(0, 1000), (65_534, 1000), (65_534, 65_534)] {
            assert!(matches!(inside.user_of(uid, own), PeerUser::Unknown(_)), "{uid} {own}");
        }
    }

    #[test]
    fn only_a_map_of_all_ids_to_themselves_is_the_identity() {
        assert!(is_identity("         0          0 4294967295\n"));
        for map in ["", "0 1000 1\n", "0 0 65536\n", "0 0 4294967295\n5 5 1\n", "1 0 4294967295\n"] {
            assert!(!is_identity(map), "{map:?}");
        }
    }
}
