//! The line decoder finds the same lines for chunks of any size, and drops a line with the chunk that exceeds the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_doors::fuzz_harness::{check_lines, script};

fuzz_target!(|input: &[u8]| check_lines(&script(input).0));
