//! The web side on real sockets, all of them on this machine. What it serves is an echo.

mod console;
mod handshake;
mod hardening;
mod places;
mod support;
mod tokens;
