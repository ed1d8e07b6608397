//! One connection after its `hello`: it sends a request and receives the answer.
//!
//! It does not retry. A failure says whether the request was sent, and `channel.rs` decides on a retry.

use std::sync::Arc;
use std::time::Duration;

use parlor_doors::lines::{Line, Lines};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::dial::{Dial, DialStream, IdleState};
use super::error::Failure;
use super::settings::CONNECT_LIMIT;
use super::wire::{self, Id, ReportedError};
use super::{CallFate, DriverError, SupexAnswer, SupexServerInfo, SupexSettings, TimeoutPhase};

/// How long an answer may take from its first byte to its last, even if it arrives steadily.
pub const MAX_ANSWER_TIME: Duration = Duration::from_secs(300);

/// How much is read at once.
const READ_BYTES: usize = 16 * 1024;

/// An answer, or the error that the server reports.
pub(super) type Outcome = Result<Box<RawValue>, ReportedError>;

pub(super) struct Connection {
    stream: Box<dyn DialStream>,
    address: Arc<str>,
    /// How long each write and each silence of the server may last.
    timeout: Duration,
    max_response: usize,
    buffer: Box<[u8]>,
    /// What the server says about itself.
    pub(super) server: SupexServerInfo,
    /// The server's whole answer to `hello`.
    pub(super) hello_answer: SupexAnswer,
    /// When the last call ended.
    last_used: Instant,
    /// How many calls were answered on this connection.
    pub(super) answered: u64,
    /// Whether the next line will be the answer to the next request.
    in_sync: bool,
}

impl Connection {
    /// Connects and sends `hello`.
    pub(super) async fn open(
        dial: &dyn Dial,
        address: &Arc<str>,
        settings: &SupexSettings,
        hello: &[u8],
    ) -> Result<Self, Failure> {
        let mut connection = Self {
            stream: connect(dial, address, settings.timeout.min(CONNECT_LIMIT)).await?,
            address: Arc::clone(address),
            timeout: settings.timeout,
            max_response: settings.max_response,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            server: SupexServerInfo::default(),
            hello_answer: SupexAnswer::new(RawValue::NULL.to_owned()),
            last_used: Instant::now(),
            answered: 0,
            in_sync: true,
        };
        match connection.exchange(hello, Id::Hello).await {
            Ok(Ok(answer)) => {
                connection.on_hello_answer(SupexAnswer::new(answer))?;
                Ok(connection)
            }
            Ok(Err(error)) => Err(Failure::Final(connection.hello_error(error))),
            // The call itself was not sent yet.
            Err(Failure::BeforeSending(error) | Failure::AfterSending(error, _)) => {
                Err(Failure::BeforeSending(not_run(error)))
            }
            Err(failure @ (Failure::Unread(_) | Failure::Final(_))) => Err(failure),
        }
    }

    /// Checks whether a call can be made on this connection. If not, returns what the peer did, and the caller drops the
    /// connection.
    pub(super) fn check(&mut self, idle_timeout: Duration) -> Result<(), IdleState> {
        let idle = self.stream.idle();
        let is_usable = idle == IdleState::Quiet && self.in_sync && self.last_used.elapsed() <= idle_timeout;
        if is_usable { Ok(()) } else { Err(idle) }
    }

    /// Sends a request and receives its answer. After an error the connection cannot be used again.
    pub(super) async fn exchange(&mut self, line: &[u8], id: Id) -> Result<Outcome, Failure> {
        self.in_sync = false;
        self.send(line).await?;
        let received = self.receive(id).await;
        self.last_used = Instant::now();
        received
    }

    async fn send(&mut self, line: &[u8]) -> Result<(), Failure> {
        let mut sent = 0;
        while let Some(rest) = line.get(sent..).filter(|rest| !rest.is_empty()) {
            let error = match timeout(self.timeout, self.stream.write(rest)).await {
                Ok(Ok(count)) if count > 0 => {
                    sent += count;
                    continue;
                }
                Ok(Ok(_)) => self.closed(None),
                Ok(Err(error)) => self.closed(Some(error)),
                Err(_) => self.timed_out(TimeoutPhase::Send, self.timeout),
            };
            // Some servers accept an object without its newline as a complete request.
            let is_complete = sent + 1 >= line.len();
            return Err(if is_complete { self.lost(error) } else { Failure::BeforeSending(not_run(error)) });
        }
        match timeout(self.timeout, self.stream.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.lost(self.closed(Some(error)))),
            Err(_) => Err(self.lost(self.timed_out(TimeoutPhase::Send, self.timeout))),
        }
    }

    async fn receive(&mut self, id: Id) -> Result<Outcome, Failure> {
        // `max_response` includes the newline, and the limit of `Lines` does not.
        let mut lines = Lines::new(self.max_response.saturating_sub(1));
        let mut first_byte: Option<Instant> = None;
        loop {
            let left = first_byte
                .map_or(MAX_ANSWER_TIME, |first_byte| MAX_ANSWER_TIME.saturating_sub(first_byte.elapsed()));
            let limit = self.timeout.min(left);
            let count = match timeout(limit, self.stream.read(&mut self.buffer)).await {
                Ok(Ok(count)) => count,
                Ok(Err(error)) => return Err(self.lost(self.closed(Some(error)))),
                Err(_) => {
                    let limit = if limit < self.timeout { MAX_ANSWER_TIME } else { self.timeout };
                    return Err(self.lost(self.timed_out(TimeoutPhase::Answer, limit)));
                }
            };
            if count == 0 {
                return self.last_line(&mut lines, id);
            }
            first_byte.get_or_insert_with(Instant::now);
            lines.push(self.buffer.get(..count).unwrap_or_default());
            let Some(line) = lines.next_line() else { continue };
            let outcome = self.read_line(&line, id)?;
            // If more follows the answer, the next line would not be the answer to the next request.
            self.in_sync = lines.finish().is_none();
            self.answered += u64::from(id != Id::Hello);
            return Ok(outcome);
        }
    }

    /// Reads the last line before the end of the connection. A complete object is an answer even without its newline; a
    /// partial one counts as a lost connection.
    fn last_line(&self, lines: &mut Lines, id: Id) -> Result<Outcome, Failure> {
        let outcome = lines.finish().and_then(|line| self.read_line(&line, id).ok());
        outcome.ok_or_else(|| self.lost(self.closed(None)))
    }

    fn read_line(&self, line: &Line<'_>, id: Id) -> Result<Outcome, Failure> {
        match line {
            Line::Whole(line) => wire::answer(line, id).map_err(|what| self.protocol_error(&what)),
            Line::Oversize => Err(Failure::Final(DriverError::TooLarge { limit: self.max_response })),
        }
    }

    fn on_hello_answer(&mut self, answer: SupexAnswer) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct HelloAnswer {
            #[serde(default)]
            server: SupexServerInfo,
        }
        if let Some(reason) = answer.failure() {
            return Err(self.protocol_error(&format!("it refused hello: {reason}")));
        }
        let HelloAnswer { server } =
            answer.decode().map_err(|error| self.protocol_error(&format!("its answer to hello: {error}")))?;
        self.server = server;
        self.hello_answer = answer;
        Ok(())
    }

    fn hello_error(&self, error: ReportedError) -> DriverError {
        let ReportedError { code, message, data, .. } = error;
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

    fn timed_out(&self, phase: TimeoutPhase, limit: Duration) -> DriverError {
        DriverError::Timeout { address: self.address.to_string(), phase, limit, fate: CallFate::Unknown }
    }

    fn protocol_error(&self, what: &str) -> Failure {
        Failure::Final(DriverError::protocol(&self.address, what))
    }
}

async fn connect(
    dial: &dyn Dial,
    address: &Arc<str>,
    limit: Duration,
) -> Result<Box<dyn DialStream>, Failure> {
    let address = address.to_string();
    let error = match timeout(limit, dial.dial()).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(error)) => DriverError::Connect { address, source: Arc::new(error) },
        Err(_) => {
            DriverError::Timeout { address, phase: TimeoutPhase::Connect, limit, fate: CallFate::NotRun }
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
