//! The loaf door: no bytes, in no cut, with no mood of the office, make it break a promise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_doors::talk::{Dialect, script, talk};

fuzz_target!(|input: &[u8]| {
    let (chunks, whims) = script(input);
    talk(Dialect::Loaf, &chunks, whims);
});
