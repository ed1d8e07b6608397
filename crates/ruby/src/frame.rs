//! The frames in the pipes to and from a worker. Numbers are 32 bits, big-endian.
//!
//! A request is a letter for its kind, its number, the sizes of a path and of code, then both. A reply is the number
//! of its request, the count of its fields, their sizes, then the fields. The format is not JSON, because Ruby would
//! have to load a library for that into the namespace of evaluated code.

use crate::{MAX_BACKTRACE_LINES, MAX_MESSAGE_BYTES, MAX_VALUE_BYTES};

/// The most fields of a reply: kind, class, message, file, line, and a backtrace.
const MAX_FIELDS: usize = 5 + MAX_BACKTRACE_LINES;

/// The most bytes of a reply: a value, or an exception with all texts cut and a note in each.
const MAX_REPLY_BYTES: usize = max(MAX_VALUE_BYTES + 64, MAX_FIELDS * (MAX_MESSAGE_BYTES + 128));

/// The size of a number in bytes.
const NUMBER_BYTES: usize = size_of::<u32>();

/// Encodes a request.
pub(crate) fn request(letter: u8, number: u32, path: &[u8], code: &[u8]) -> Vec<u8> {
    let size =
        |text: &[u8]| u32::try_from(text.len()).expect("code is limited to less than 4 GiB").to_be_bytes();
    [&[letter], &number.to_be_bytes()[..], &size(path)[..], &size(code)[..], path, code].concat()
}

/// A decoded reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The number of the request that it answers.
    pub(crate) number: u32,
    pub(crate) fields: Vec<Vec<u8>>,
}

/// Decodes replies from bytes as they come.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
}

/// The header of a reply that is larger than any that `worker.rb` sends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it sent a frame of {fields} fields and {bytes} bytes")]
pub(crate) struct Oversized {
    fields: usize,
    bytes: usize,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The next reply, if all of its bytes have come.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, Oversized> {
        let (Some(number), Some(count)) = (self.number(0), self.size(1)) else { return Ok(None) };
        if count > MAX_FIELDS {
            return Err(Oversized { fields: count, bytes: 0 });
        }
        let Some(sizes) = (2..2 + count).map(|index| self.size(index)).collect::<Option<Vec<usize>>>() else {
            return Ok(None);
        };
        let (head, body) = (NUMBER_BYTES * (2 + count), sizes.iter().sum::<usize>());
        if body > MAX_REPLY_BYTES {
            return Err(Oversized { fields: count, bytes: body });
        }
        if self.bytes.len() < head + body {
            return Ok(None);
        }
        let frame: Vec<u8> = self.bytes.drain(..head + body).collect();
        let mut rest = frame.get(head..).unwrap_or_default();
        let fields = sizes.into_iter().map(|size| {
            let (field, after) = rest.split_at(size);
            rest = after;
            field.to_vec()
        });
        Ok(Some(Reply { number, fields: fields.collect() }))
    }

    fn size(&self, index: usize) -> Option<usize> {
        self.number(index).map(|size| size as usize)
    }

    fn number(&self, index: usize) -> Option<u32> {
        let bytes = self.bytes.get(NUMBER_BYTES * index..NUMBER_BYTES * (index + 1))?;
        Some(u32::from_be_bytes(bytes.try_into().expect("the slice has four bytes")))
    }
}

const fn max(one: usize, other: usize) -> usize {
    if one > other { one } else { other }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a reply as a worker does.
    fn encode(number: usize, fields: &[Vec<u8>]) -> Vec<u8> {
        let sizes = fields.iter().map(Vec::len);
        let numbers = [number, fields.len()].into_iter().chain(sizes);
        numbers.flat_map(|number| (number as u32).to_be_bytes()).chain(fields.concat()).collect()
    }

    #[test]
    fn a_request_has_its_number_and_its_sizes_in_front() {
        assert_eq!(request(b's', 7, b"ab", b"cde"), b"s\0\0\0\x07\0\0\0\x02\0\0\0\x03abcde");
    }

    proptest! {
        #[test]
        fn replies_are_decoded_for_pieces_of_any_size(
            frames in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..5), 0..5),
            piece in 1usize..12,
        ) {
            let numbered = || frames.iter().enumerate();
            let bytes: Vec<u8> = numbered().flat_map(|(number, fields)| encode(number, fields)).collect();
            let (mut decoder, mut decoded) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                decoder.push(piece);
                while let Some(frame) = decoder.next().unwrap() {
                    decoded.push(frame);
                }
            }
            let replies = numbered().map(|(number, fields)| Reply { number: number as u32, fields: fields.clone() });
            prop_assert_eq!(decoded, replies.collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_oversized_reply_is_refused_before_it_is_buffered() {
        let mut decoder = Decoder::default();
        decoder.push(&encode(1, &vec![Vec::new(); MAX_FIELDS]));
        assert_eq!(decoder.next().unwrap().unwrap().fields.len(), MAX_FIELDS);
        decoder.push(&[u32::MAX.to_be_bytes(); 2].concat());
        assert_eq!(decoder.next(), Err(Oversized { fields: u32::MAX as usize, bytes: 0 }));

        let mut decoder = Decoder::default();
        decoder.push(&[1u32.to_be_bytes(); 2].concat());
        decoder.push(&(MAX_REPLY_BYTES as u32).to_be_bytes());
        assert_eq!(decoder.next(), Ok(None));
        let mut decoder = Decoder::default();
        decoder.push(&[1u32.to_be_bytes(); 2].concat());
        decoder.push(&(MAX_REPLY_BYTES as u32 + 1).to_be_bytes());
        assert_eq!(decoder.next(), Err(Oversized { fields: 1, bytes: MAX_REPLY_BYTES + 1 }));
    }
}
