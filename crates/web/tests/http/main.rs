//! The web server on real sockets of this machine, with real sessions in memory, real terminals and the real supr door.

mod api;
mod client;
mod compression;
mod connections;
mod cookies;
mod description;
mod event_stream;
mod handshake;
mod hardening;
mod origins;
mod other_users;
mod processes;
mod proxies;
mod server;
mod sessions;
mod slow_readers;
mod tokens;
