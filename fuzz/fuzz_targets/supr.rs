//! The supr door: no messages, with no mood of the house and whatever happened before, make it break a promise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_doors::fuzz_harness::{Dialect, play, script};

fuzz_target!(|input: &[u8]| {
    let (chunks, choices) = script(input);
    play(Dialect::Supr, &chunks, choices);
});
