//! The web server on real sockets of this machine, with real sessions in memory, real terminals and the real supr door.

mod api;
mod client;
mod connections;
mod cookies;
mod handshake;
mod hardening;
mod other_users;
mod processes;
mod server;
mod sessions;
mod slow_readers;
mod tokens;
