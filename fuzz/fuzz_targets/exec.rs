//! The exec door: no bytes, in no cut, with no mood of the engine, make it break a promise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_doors::fuzz_harness::{Dialect, play, script};

fuzz_target!(|input: &[u8]| {
    let (chunks, choices) = script(input);
    play(Dialect::Exec, &chunks, choices);
});
