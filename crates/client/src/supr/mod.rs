//! The client of the supr dialect: one session over WebSocket, across any number of connections.
//!
//! ```no_run
//! use parlor_client::supr::{SuprClient, SuprEvent, SuprSettings};
//!
//! # async fn example() -> Result<(), parlor_client::supr::SuprError> {
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
//! The client replaces a lost connection with a new one and gets the events that it missed: [`SuprClient::next`] returns
//! each event once and in order. Messages that may not have arrived are sent again with the same key, by which a server like
//! parlor recognizes them and handles each only once.

mod client;
mod dial;
mod error;
mod settings;
mod unconfirmed;

use std::time::Duration;

pub use client::{SuprClient, SuprEvent, SuprFile, SuprMessage};
pub use error::SuprError;
pub use parlor_doors::supr::wire::{Activity, Typed};
pub use settings::SuprSettings;

/// How long opening a connection may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// The pause before the first try to reconnect. It doubles after each failure.
pub const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two tries to reconnect.
pub const LAST_PAUSE: Duration = Duration::from_secs(5);

/// How long a server may send nothing before the connection counts as lost, by default: twice the server's ping interval.
pub const SILENCE: Duration = Duration::from_secs(60);

/// How many messages may be unconfirmed at a time.
pub const MAX_UNCONFIRMED: usize = 64;

/// How many bytes the unconfirmed messages may have in all. A single message may have any size.
pub const MAX_UNCONFIRMED_BYTES: usize = 64 << 20;

/// The longest frame that a server may send.
pub const MAX_FRAME_BYTES: usize = 128 << 20;
