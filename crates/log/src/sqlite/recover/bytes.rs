//! Numbers in SQLite's encoding.

/// Reads the big-endian number of two bytes at `offset`. Returns 0 if `bytes` ends before it does.
pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes.get(offset..offset + 2).and_then(|number| number.try_into().ok()).map_or(0, u16::from_be_bytes)
}

/// Reads the big-endian number of four bytes at `offset`. Returns 0 if `bytes` ends before it does.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).and_then(|number| number.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Decodes the varint at the start of `bytes`. Returns its value and its length, at most nine bytes; `None` if `bytes`
/// ends before the varint does.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(9) {
        if index == 8 {
            return Some((value << 8 | u64::from(*byte), 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decoded() {
        assert_eq!(varint(&[0x7f]), Some((127, 1)));
        assert_eq!(varint(&[0x81, 0x00]), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9]), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0xff; 8]), None);
        assert_eq!(varint(&[]), None);
        assert_eq!((u16_at(&[1, 2], 0), u32_at(&[0, 1, 2, 3], 0), u32_at(&[1], 0)), (0x102, 0x10203, 0));
    }
}
