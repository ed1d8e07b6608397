//! Answers of providers: whatever comes is read to an end, and any cut of the bytes gives the same pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_model::provider::check_recorded;

fuzz_target!(|input: &[u8]| check_recorded(input));
