//! The supr door: no messages, with no mood of the house and whatever happened before, make it break a promise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_doors::talk::{Dialect, script, talk};

fuzz_target!(|input: &[u8]| {
    let (chunks, whims) = script(input);
    talk(Dialect::Supr, &chunks, whims);
});
