//! The one connection of a client, which is renewed when needed, and the calls that take turns on it.
//!
//! This module decides when a call is tried again. The documentation of the module `supex` has the rule.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parlor_doors::supex::{HelloParams, method};
use serde::Serialize;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep};

use super::connection::{Connection, Outcome};
use super::dial::{Dial, IdleState};
use super::error::Failure;
use super::wire::{self, Id, ReportedError};
use super::{CallFate, DriverError, MAX_REQUEST_BYTES, SupexAnswer, SupexServerInfo, SupexSettings};

/// How many calls of one client may run or wait for their turn. Further calls fail as [`DriverError::Busy`].
pub const MAX_WAITING_CALLS: usize = 256;

/// The most retries of a call, whatever the settings say.
pub const MAX_RETRIES: u32 = 20;

/// The pause before the first retry of a connection that failed. It doubles with each retry.
pub const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause before a retry.
pub const MAX_RETRY_PAUSE: Duration = Duration::from_secs(2);

/// How long after the loss of its connection a call may be repeated to attach. Servers keep an answer that no client has
/// read for about 60 s; after that, they would run the call once more.
pub const ATTACH_WINDOW: Duration = Duration::from_secs(45);

/// What happens if a call is sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Nothing: the call only reads.
    Harmless,
    /// The call runs twice, unless the server attaches the second one to the first.
    RunsAgain,
}

pub(super) struct Channel {
    dial: Box<dyn Dial>,
    address: Arc<str>,
    settings: SupexSettings,
    hello: HelloParams,
    slots: Semaphore,
    /// Callers lock it in the order in which they came.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Whether the server has closed a connection after its first answer. Some servers always do so a moment after the
    /// answer, and a check of the connection may come too early to notice it.
    closes_after_answer: bool,
    /// The last nonce of the server, by which it recognizes this client on another connection.
    nonce: Option<String>,
}

/// A call that was sent completely, and whose answer did not come.
struct LostCall {
    error: DriverError,
    server: SupexServerInfo,
    lost_at: Instant,
}

impl Channel {
    /// `hello` is sent first on each connection, with the nonce that the server gave on an earlier one.
    pub(super) fn new(
        dial: Box<dyn Dial>,
        address: String,
        settings: SupexSettings,
        hello: HelloParams,
    ) -> Self {
        let (slots, state) = (Semaphore::new(MAX_WAITING_CALLS), Mutex::default());
        Self { dial, address: address.into(), settings, hello, slots, state }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// What the server says about itself, and its whole answer to `hello`. Connects if there is no usable connection.
    pub(super) async fn hello_answer(&self) -> Result<(SupexServerInfo, SupexAnswer), DriverError> {
        let _slot = self.slots.try_acquire().map_err(|_| DriverError::Busy)?;
        let mut state = self.state.lock().await;
        let mut tries = Tries::new(&self.settings, Repeat::Harmless);
        loop {
            match self.usable_connection(&mut state, Repeat::Harmless).await {
                Ok(connection) => {
                    let answer = (connection.server.clone(), connection.hello_answer.clone());
                    state.connection = Some(connection);
                    return Ok(answer);
                }
                Err(failure) => tries.after(failure).await?,
            }
        }
    }

    /// Makes a call, and retries it where that is safe.
    pub(super) async fn call(
        &self,
        method: &str,
        params: &impl Serialize,
        repeat: Repeat,
    ) -> Result<SupexAnswer, DriverError> {
        let _slot = self.slots.try_acquire().map_err(|_| DriverError::Busy)?;
        let id = Id::next();
        let line = wire::request(id, method, params);
        if line.len() > MAX_REQUEST_BYTES {
            return Err(DriverError::RequestTooLarge { bytes: line.len() });
        }
        let mut state = self.state.lock().await;
        let mut tries = Tries::new(&self.settings, repeat);
        loop {
            let attempt = async {
                let mut connection = self.usable_connection(&mut state, repeat).await?;
                tries.may_send(&connection.server)?;
                // The connection is not in the state meanwhile, so a future that is dropped drops it too.
                let outcome = connection.exchange(&line, id).await?;
                state.finish_call(connection, outcome)
            };
            match attempt.await {
                Ok(answer) => return Ok(answer),
                Err(failure) => tries.after(failure).await?,
            }
        }
    }

    /// Takes the open connection if it is usable, or opens another one.
    async fn usable_connection(&self, state: &mut State, repeat: Repeat) -> Result<Connection, Failure> {
        if let Some(mut connection) = state.connection.take() {
            let may_close =
                state.closes_after_answer && repeat == Repeat::RunsAgain && connection.answered > 0;
            match connection.check(self.settings.idle_timeout) {
                Ok(()) if !may_close => return Ok(connection),
                Ok(()) => {}
                Err(idle) => {
                    let closed_after_answer = idle == IdleState::Closed && connection.answered == 1;
                    state.closes_after_answer |= closed_after_answer && !connection.server.attach;
                }
            }
        }
        let hello = HelloParams { nonce: state.nonce.clone(), ..self.hello.clone() };
        let hello = wire::request(Id::Hello, method::HELLO, &hello);
        let connection = Connection::open(&*self.dial, &self.address, &self.settings, &hello).await?;
        state.nonce.clone_from(&connection.server.nonce);
        Ok(connection)
    }
}

impl State {
    /// Keeps the connection for the next call, and converts the outcome to the caller's result.
    fn finish_call(&mut self, connection: Connection, outcome: Outcome) -> Result<SupexAnswer, Failure> {
        self.closes_after_answer &= connection.answered < 2;
        let attach = connection.server.attach;
        self.connection = Some(connection);
        match outcome {
            Ok(result) => Ok(SupexAnswer::new(result)),
            Err(ReportedError { code, message, data, names_request }) => {
                let error = DriverError::Remote { code, message, data };
                // The request is valid JSON, so the server has parsed it before all of it had arrived. Some servers do so
                // with long requests, and close the connection.
                if code == wire::PARSE_ERROR && !names_request && !attach {
                    self.connection = None;
                    return Err(Failure::Unread(error));
                }
                Err(Failure::Final(error))
            }
        }
    }
}

/// The attempts at one call.
struct Tries {
    repeat: Repeat,
    left: u32,
    pause: Duration,
    /// The last lost attempt of a call that must not run twice.
    lost: Option<LostCall>,
}

impl Tries {
    fn new(settings: &SupexSettings, repeat: Repeat) -> Self {
        Self { repeat, left: settings.retries.min(MAX_RETRIES), pause: RETRY_PAUSE, lost: None }
    }

    /// Fails if the call was lost before and would not attach to the lost call on `server`.
    fn may_send(&self, server: &SupexServerInfo) -> Result<(), Failure> {
        match &self.lost {
            Some(lost) if !lost.can_attach(server) => Err(Failure::Final(lost.error.clone())),
            Some(_) | None => Ok(()),
        }
    }

    /// Handles the failure of an attempt. Returns when the next attempt may be made, and fails if there is none.
    async fn after(&mut self, failure: Failure) -> Result<(), DriverError> {
        let last = self.left == 0;
        self.left = self.left.saturating_sub(1);
        match failure {
            Failure::Final(error) => Err(self.give_up(error)),
            Failure::BeforeSending(error) | Failure::Unread(error) | Failure::AfterSending(error, _)
                if last =>
            {
                Err(self.give_up(error))
            }
            Failure::Unread(_) => Ok(()),
            Failure::AfterSending(error, server) => match self.repeat {
                Repeat::Harmless => Ok(()),
                Repeat::RunsAgain if !server.attach => Err(error),
                Repeat::RunsAgain => {
                    self.lost = Some(LostCall { error, server: *server, lost_at: Instant::now() });
                    Ok(())
                }
            },
            // A server that refuses connections has ended, and so have its calls.
            Failure::BeforeSending(error) if self.lost.is_some() && is_refused(&error) => {
                Err(self.give_up(error))
            }
            Failure::BeforeSending(error) => {
                if let DriverError::Connect { .. } = error {
                    sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(MAX_RETRY_PAUSE);
                }
                Ok(())
            }
        }
    }

    /// The error for the caller. If this attempt has not run, an earlier one may have, so its error is returned.
    fn give_up(&mut self, error: DriverError) -> DriverError {
        match self.lost.take() {
            Some(lost) if error.fate() == CallFate::NotRun => lost.error,
            Some(_) | None => error,
        }
    }
}

impl LostCall {
    fn can_attach(&self, server: &SupexServerInfo) -> bool {
        server.is_same_process(&self.server) && self.lost_at.elapsed() <= ATTACH_WINDOW
    }
}

fn is_refused(error: &DriverError) -> bool {
    matches!(error, DriverError::Connect { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
}
