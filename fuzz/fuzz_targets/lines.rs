//! Lines: any cut of the bytes gives the lines that are in them, and a line too long is dropped
//! with the chunk that makes it so.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_doors::fuzz_harness::{check_lines, script};

fuzz_target!(|input: &[u8]| check_lines(&script(input).0));
