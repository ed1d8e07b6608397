//! The MCP door keeps its guarantees for any bytes, in chunks of any size, with any choices of its backend.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_doors::fuzz_harness::{Dialect, play, script};

fuzz_target!(|input: &[u8]| {
    let (chunks, choices) = script(input);
    play(Dialect::Mcp, &chunks, choices);
});
