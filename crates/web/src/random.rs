//! Random bytes: for new tokens, and for the ids of sessions that clients do not name.

use std::sync::Arc;

/// A source of random bytes. Tests bring their own.
pub type RandomSource = Arc<dyn Fn() -> [u8; 16] + Send + Sync>;

/// Random bytes of the kernel.
pub fn system_random() -> RandomSource {
    Arc::new(|| {
        let (mut bytes, mut filled) = ([0; 16], 0);
        while let Some(rest @ [_, ..]) = bytes.get_mut(filled..) {
            match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel returned no random bytes: {error}"),
            }
        }
        bytes
    })
}

/// The bytes as 32 lowercase hexadecimal digits.
pub(crate) fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// A UUID of version 4 with these bytes, apart from its version and its variant.
pub(crate) fn uuid(bytes: [u8; 16]) -> String {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0b11 << 62;
    let number = u128::from_be_bytes(bytes) & !VERSION & !VARIANT | 0x4 << 76 | 0b10 << 62;
    let [first, second, third, fourth] =
        [number >> 96, number >> 80 & 0xffff, number >> 64 & 0xffff, number >> 48 & 0xffff];
    format!("{first:08x}-{second:04x}-{third:04x}-{fourth:04x}-{:012x}", number & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_layout_of_uuid_version_4() {
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn two_random_values_differ() {
        let random = system_random();
        assert_ne!(random(), random());
        assert_eq!(hex([0x0a; 16]), "0a".repeat(16));
    }
}
