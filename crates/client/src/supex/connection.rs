//! One connection that has said hello: a request goes out, an answer comes back.
//!
//! It knows no second attempt. What went wrong is sorted by whether the request was sent, and the
//! `channel` decides what follows.

use std::sync::Arc;
use std::time::Duration;

use parlor_doors::lines::{Line, Lines};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::dial::{Dial, IdleState, DialStream};
use super::error::Failure;
use super::settings::CONNECT_LIMIT;
use super::wire::{self, Id, Reported};
use super::{SupexAnswer, CallFate, DriverError, TimeoutPhase, SupexServerInfo, SupexSettings};

/// How long an answer may take from its first byte to its last, however steadily it comes.
pub const MAX_ANSWER_TIME: Duration = Duration::from_secs(300);

/// How much is read at once.
const READ_BYTES: usize = 16 * 1024;

/// An answer, or the error that the server reports.
pub(super) type Outcome = Result<Box<RawValue>, Reported>;

pub(super) struct Connection {
    link: Box<dyn DialStream>,
    address: Arc<str>,
    patience: Duration,
    max_response: usize,
    buffer: Box<[u8]>,
    /// What the server says of itself.
    pub(super) server: SupexServerInfo,
    /// Its whole answer to `hello`.
    pub(super) welcome: SupexAnswer,
    /// When it was last used.
    used: Instant,
    /// How many calls were answered on it.
    pub(super) answered: u64,
    /// Whether the next line will be the answer to the next request.
    in_step: bool,
}

impl Connection {
    /// Connects and says hello.
    pub(super) async fn open(
        dial: &dyn Dial,
        address: &Arc<str>,
        settings: &SupexSettings,
        hello: &[u8],
    ) -> Result<Self, Failure> {
        let mut connection = Self {
            link: connect(dial, address, settings.timeout.min(CONNECT_LIMIT)).await?,
            address: Arc::clone(address),
            patience: settings.timeout,
            max_response: settings.max_response,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            server: SupexServerInfo::default(),
            welcome: SupexAnswer::new(RawValue::NULL.to_owned()),
            used: Instant::now(),
            answered: 0,
            in_step: true,
        };
        match connection.exchange(hello, Id::Hello).await {
            Ok(Ok(welcome)) => {
                connection.greeted(SupexAnswer::new(welcome))?;
                Ok(connection)
            }
            Ok(Err(refusal)) => Err(Failure::Final(connection.refused(refusal))),
            // The call itself has not been sent.
            Err(Failure::BeforeSending(error) | Failure::AfterSending(error, _)) => {
                Err(Failure::BeforeSending(not_run(error)))
            }
            Err(failure @ (Failure::Unread(_) | Failure::Final(_))) => Err(failure),
        }
    }

    /// Whether a call may be made on it. Otherwise it is to be dropped; the peer's doing is told.
    pub(super) fn look(&mut self, idle_timeout: Duration) -> Result<(), IdleState> {
        let found = self.link.idle();
        let good = found == IdleState::Quiet && self.in_step && self.used.elapsed() <= idle_timeout;
        if good { Ok(()) } else { Err(found) }
    }

    /// Sends a request and takes the answer to it. After an error the connection is of no more use.
    pub(super) async fn exchange(&mut self, line: &[u8], id: Id) -> Result<Outcome, Failure> {
        self.in_step = false;
        self.send(line).await?;
        let received = self.receive(id).await;
        self.used = Instant::now();
        received
    }

    async fn send(&mut self, line: &[u8]) -> Result<(), Failure> {
        let mut sent = 0;
        while let Some(rest) = line.get(sent..).filter(|rest| !rest.is_empty()) {
            let error = match timeout(self.patience, self.link.write(rest)).await {
                Ok(Ok(count)) if count > 0 => {
                    sent += count;
                    continue;
                }
                Ok(Ok(_)) => self.closed(None),
                Ok(Err(error)) => self.closed(Some(error)),
                Err(_) => self.silent(TimeoutPhase::ToSend, self.patience),
            };
            // Some servers take an object whose newline is missing for a whole request.
            let whole = sent + 1 >= line.len();
            return Err(if whole { self.lost(error) } else { Failure::BeforeSending(not_run(error)) });
        }
        match timeout(self.patience, self.link.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.lost(self.closed(Some(error)))),
            Err(_) => Err(self.lost(self.silent(TimeoutPhase::ToSend, self.patience))),
        }
    }

    async fn receive(&mut self, id: Id) -> Result<Outcome, Failure> {
        // The limit is that of a line with its newline, the decoder's is one without.
        let mut lines = Lines::new(self.max_response.saturating_sub(1));
        let mut began: Option<Instant> = None;
        loop {
            let left = began.map_or(MAX_ANSWER_TIME, |began| MAX_ANSWER_TIME.saturating_sub(began.elapsed()));
            let limit = self.patience.min(left);
            let count = match timeout(limit, self.link.read(&mut self.buffer)).await {
                Ok(Ok(count)) => count,
                Ok(Err(error)) => return Err(self.lost(self.closed(Some(error)))),
                Err(_) => {
                    let limit = if limit < self.patience { MAX_ANSWER_TIME } else { self.patience };
                    return Err(self.lost(self.silent(TimeoutPhase::ForAnswer, limit)));
                }
            };
            if count == 0 {
                return self.last_words(&mut lines, id);
            }
            began.get_or_insert_with(Instant::now);
            lines.push(self.buffer.get(..count).unwrap_or_default());
            let Some(line) = lines.next_line() else { continue };
            let outcome = self.read_line(&line, id)?;
            // Whatever comes along with an answer answers nothing, so the next answer would be a guess.
            self.in_step = lines.finish().is_none();
            self.answered += u64::from(id != Id::Hello);
            return Ok(outcome);
        }
    }

    /// An object is whole without its newline; half of one is just a connection that was lost.
    fn last_words(&self, lines: &mut Lines, id: Id) -> Result<Outcome, Failure> {
        let whole = lines.finish().and_then(|line| self.read_line(&line, id).ok());
        whole.ok_or_else(|| self.lost(self.closed(None)))
    }

    fn read_line(&self, line: &Line<'_>, id: Id) -> Result<Outcome, Failure> {
        match line {
            Line::Whole(line) => wire::answer(line, id).map_err(|what| self.broke(&what)),
            Line::Oversize => Err(Failure::Final(DriverError::TooLarge { limit: self.max_response })),
        }
    }

    fn greeted(&mut self, welcome: SupexAnswer) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Welcome {
            #[serde(default)]
            server: SupexServerInfo,
        }
        if let Some(reason) = welcome.failure() {
            return Err(self.broke(&format!("it does not welcome us: {reason}")));
        }
        let Welcome { server } =
            welcome.decode().map_err(|flaw| self.broke(&format!("its answer to hello: {flaw}")))?;
        self.server = server;
        self.welcome = welcome;
        Ok(())
    }

    fn refused(&self, refusal: Reported) -> DriverError {
        let Reported { code, message, data, .. } = refusal;
        if code == wire::UNAUTHORIZED {
            return DriverError::Unauthorized { address: self.address.to_string(), message };
        }
        DriverError::Remote { code, message, data }
    }

    fn lost(&self, error: DriverError) -> Failure {
        Failure::AfterSending(error, Box::new(self.server.clone()))
    }

    fn closed(&self, source: Option<std::io::Error>) -> DriverError {
        let (address, source) = (self.address.to_string(), source.map(Arc::new));
        DriverError::Closed { address, fate: CallFate::Unknown, source }
    }

    fn silent(&self, waiting: TimeoutPhase, limit: Duration) -> DriverError {
        DriverError::Timeout { address: self.address.to_string(), waiting, limit, fate: CallFate::Unknown }
    }

    fn broke(&self, what: &str) -> Failure {
        Failure::Final(DriverError::protocol(&self.address, what))
    }
}

async fn connect(dial: &dyn Dial, address: &Arc<str>, limit: Duration) -> Result<Box<dyn DialStream>, Failure> {
    let address = address.to_string();
    let error = match timeout(limit, dial.dial()).await {
        Ok(Ok(link)) => return Ok(link),
        Ok(Err(error)) => DriverError::Connect { address, source: Arc::new(error) },
        Err(_) => {
            DriverError::Timeout { address, waiting: TimeoutPhase::ToConnect, limit, fate: CallFate::NotRun }
        }
    };
    Err(Failure::BeforeSending(error))
}

fn not_run(mut error: DriverError) -> DriverError {
    if let DriverError::Closed { fate, .. } | DriverError::Timeout { fate, .. } = &mut error {
        *fate = CallFate::NotRun;
    }
    error
}
