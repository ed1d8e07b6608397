//! The web side on real sockets, all of them on this machine. What it serves is an echo.

mod bench;
mod console;
mod cookies;
mod handshake;
mod hardening;
mod places;
mod processes;
mod strangers;
mod support;
mod tokens;
mod unread;
