//! A client of the supr dialect: one session over WebSocket, across any number of connections.
//!
//! ```no_run
//! use parlor_client::supr::{SuprClient, SuprEvent, SuprSettings};
//!
//! # async fn talk() -> Result<(), parlor_client::supr::SuprError> {
//! let mut client = SuprClient::connect(SuprSettings::new("ws://127.0.0.1:18790/supr/ws", "the token")).await?;
//! client.send("what is in this folder?").await?;
//! loop {
//!     match client.next().await? {
//!         SuprEvent::Activity(event) if event.event_type == "message.completed" => {
//!             println!("{}", event.data["text"]);
//!         }
//!         SuprEvent::Activity(event) if event.event_type == "run.completed" => return Ok(()),
//!         _ => {}
//!     }
//! }
//! # }
//! ```
//!
//! A connection that is lost is opened again, with what the server said meanwhile: [`SuprClient::next`] gives each
//! event once and in order. What was sent and may not have arrived is sent again, under a key by which a
//! server like parlor knows it: it is carried out once.

mod backlog;
mod client;
mod dial;
mod error;
mod settings;

use std::time::Duration;

pub use client::{SuprClient, SuprFile, SuprMessage, SuprEvent};
pub use error::Error;
pub use parlor_doors::supr::wire::{Activity, Typed};
pub use settings::SuprSettings;

/// How long opening a connection may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// How long after a connection was lost it is opened again, at first; twice as long after each failure.
pub const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest of these pauses.
pub const LAST_PAUSE: Duration = Duration::from_secs(5);

/// How long a server may say nothing at all, unless something else is set: twice the time in which it pings.
pub const SILENCE: Duration = Duration::from_secs(60);

/// How many messages may be on their way without a sign of their arrival.
pub const MAX_UNSETTLED: usize = 64;

/// How many bytes these messages may have in all; one of any size is always taken.
pub const MAX_UNSETTLED_BYTES: usize = 64 << 20;

/// The longest frame that is taken from a server.
pub const MAX_FRAME_BYTES: usize = 128 << 20;
