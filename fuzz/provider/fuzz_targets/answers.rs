//! The readers of providers' answers accept any bytes, and give the same events for chunks of any size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parlor_model::provider::check_recorded;

fuzz_target!(|input: &[u8]| check_recorded(input));
