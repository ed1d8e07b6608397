//! The supex doors: no bytes, in no cut, with no mood of the workshop, make them break a promise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_doors::supex::imagined;
use parlor_doors::talk::script;

fuzz_target!(|input: &[u8]| {
    let (chunks, whims) = script(input);
    imagined::talk(&chunks, whims);
});
