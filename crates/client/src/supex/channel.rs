//! The one connection of a client, kept and renewed, and the calls that take turns on it.
//!
//! Here is decided when a call is tried again. The rule is in the head of the module `supex`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep};

use super::connection::{Connection, Outcome};
use super::dial::{Dial, IdleState};
use super::error::Failure;
use super::wire::{self, Id, Reported};
use super::{SupexAnswer, CallFate, DriverError, MAX_REQUEST_BYTES, SupexServerInfo, SupexSettings};

/// How many calls of one client may be under way or wait for their turn; the next one is refused.
pub const MAX_WAITING_CALLS: usize = 256;

/// How many times more a call is tried at most, whatever the settings say.
pub const MAX_RETRIES: u32 = 20;

/// How long to wait before connecting again to a server that could not be reached; doubled each time.
pub const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The longest of these pauses.
pub const MAX_RETRY_PAUSE: Duration = Duration::from_secs(2);

/// How long after its loss a call may be sent again to be attached. Servers keep an answer that
/// nobody took for about 60 s; after that they would run the call once more.
pub const ATTACH_WINDOW: Duration = Duration::from_secs(45);

/// What sending a call once more would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// No harm, it only reads.
    Harmless,
    /// The work once more, unless the server attaches it to the call that runs.
    RunsAgain,
}

pub(super) struct Channel {
    dial: Box<dyn Dial>,
    address: Arc<str>,
    settings: SupexSettings,
    hello: Vec<u8>,
    slots: Semaphore,
    /// Those who wait for it get it in the order in which they came.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// The server was seen to close a connection after its first answer. Some do so each time, a
    /// moment after the answer, so that a look at the connection may come too early to notice.
    one_answer_each: bool,
}

/// A call that was sent whole, and whose answer did not come.
struct Loss {
    error: DriverError,
    server: SupexServerInfo,
    at: Instant,
}

impl Channel {
    /// `hello` is the line to begin each connection with.
    pub(super) fn new(dial: Box<dyn Dial>, address: String, settings: SupexSettings, hello: Vec<u8>) -> Self {
        let (slots, state) = (Semaphore::new(MAX_WAITING_CALLS), Mutex::default());
        Self { dial, address: address.into(), settings, hello, slots, state }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// What the server says of itself and its whole answer to `hello`; connects if need be.
    pub(super) async fn welcome(&self) -> Result<(SupexServerInfo, SupexAnswer), DriverError> {
        let _slot = self.slots.try_acquire().map_err(|_| DriverError::Busy)?;
        let mut state = self.state.lock().await;
        let mut tries = Tries::new(&self.settings, Repeat::Harmless);
        loop {
            match self.ready(&mut state, Repeat::Harmless).await {
                Ok(connection) => {
                    let told = (connection.server.clone(), connection.welcome.clone());
                    state.connection = Some(connection);
                    return Ok(told);
                }
                Err(failure) => tries.after(failure).await?,
            }
        }
    }

    /// Makes a call, if need be more than once.
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
                let mut connection = self.ready(&mut state, repeat).await?;
                tries.may_send(&connection.server)?;
                // It is not in the state meanwhile: a dropped future takes it along.
                let outcome = connection.exchange(&line, id).await?;
                state.judge(connection, outcome)
            };
            match attempt.await {
                Ok(answer) => return Ok(answer),
                Err(failure) => tries.after(failure).await?,
            }
        }
    }

    /// The connection that is there, if it is any good, or else another one.
    async fn ready(&self, state: &mut State, repeat: Repeat) -> Result<Connection, Failure> {
        if let Some(mut connection) = state.connection.take() {
            let risky = state.one_answer_each && repeat == Repeat::RunsAgain && connection.answered > 0;
            match connection.look(self.settings.idle_timeout) {
                Ok(()) if !risky => return Ok(connection),
                Ok(()) => {}
                Err(found) => {
                    let once = found == IdleState::Closed && connection.answered == 1;
                    state.one_answer_each |= once && !connection.server.attach;
                }
            }
        }
        Connection::open(&*self.dial, &self.address, &self.settings, &self.hello).await
    }
}

impl State {
    /// Keeps the connection for the next call, and makes of the outcome what the caller gets.
    fn judge(&mut self, connection: Connection, outcome: Outcome) -> Result<SupexAnswer, Failure> {
        self.one_answer_each &= connection.answered < 2;
        let attach = connection.server.attach;
        self.connection = Some(connection);
        match outcome {
            Ok(result) => Ok(SupexAnswer::new(result)),
            Err(Reported { code, message, data, names_request }) => {
                let error = DriverError::Remote { code, message, data };
                // What we write can be read, so the server has looked before all of it was there.
                // Some do so with long requests, and close the connection.
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
    /// Only of a call that must not run again.
    loss: Option<Loss>,
}

impl Tries {
    fn new(settings: &SupexSettings, repeat: Repeat) -> Self {
        Self { repeat, left: settings.retries.min(MAX_RETRIES), pause: RETRY_PAUSE, loss: None }
    }

    /// Whether the call may be sent to `server`, after what happened before.
    fn may_send(&self, server: &SupexServerInfo) -> Result<(), Failure> {
        match &self.loss {
            Some(loss) if !loss.can_be_attached(server) => Err(Failure::Final(loss.error.clone())),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns when the next attempt may be made, or fails if there is to be none.
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
                    self.loss = Some(Loss { error, server: *server, at: Instant::now() });
                    Ok(())
                }
            },
            // A server that refuses connections is gone, and with it what was running there.
            Failure::BeforeSending(error) if self.loss.is_some() && is_refused(&error) => {
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

    /// That an attempt came to nothing must not hide that an earlier one may have come to something.
    fn give_up(&mut self, error: DriverError) -> DriverError {
        match self.loss.take() {
            Some(loss) if error.fate() == CallFate::NotRun => loss.error,
            Some(_) | None => error,
        }
    }
}

impl Loss {
    fn can_be_attached(&self, server: &SupexServerInfo) -> bool {
        server.continues(&self.server) && self.at.elapsed() <= ATTACH_WINDOW
    }
}

fn is_refused(error: &DriverError) -> bool {
    matches!(error, DriverError::Connect { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
}
