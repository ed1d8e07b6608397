//! Real users of one machine: a server that runs as one of them, and attacks by another.
//!
//! Only root can become other users. Elsewhere these tests do nothing and say so on standard error.
#![expect(clippy::disallowed_methods, reason = "tests start the program themselves")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod containers;
mod cookies;
mod crowding;
mod files;
mod http;
mod instructions;
mod listening;
mod login;
mod orphans;
mod own_address;
mod owner;
mod provider;
mod server;
mod supex;
mod users;
