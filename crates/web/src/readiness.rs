//! Whether the server is ready: whether it can record messages. It logs a line whenever that changes.
//!
//! The server learns it from appends that fail and from checks of the log. A check runs when a client asks and the last
//! one is a while ago, and regularly while the server is not ready. So asking is cheap, however often clients do it.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use parlor_log::{EventLog, LogError};

/// How long the result of a check is valid.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How long a check may take before the server counts as not ready.
const CHECK_WAIT: Duration = Duration::from_secs(5);

/// The reason if a check takes longer.
const NO_ANSWER: &str =
    "the log has not answered for 5 seconds: the disk that holds parlor.db, or the database and its standby";

/// Whether the server can record messages.
pub struct Readiness {
    check_log: CheckLog,
    /// The state folder, with a slash. Reasons are shown without it, since any client may ask for them.
    folder: String,
    state: Mutex<State>,
}

/// Checks whether the log can be written now. Waits for the disk.
type CheckLog = Box<dyn Fn() -> BoxFuture<Result<(), LogError>> + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

struct State {
    /// Why the server is not ready; `None` if it is.
    reason: Option<String>,
    /// When the last check ended.
    checked: Instant,
    is_checking: bool,
}

impl Readiness {
    /// The readiness of `log`, which was just opened in the state folder `home`.
    pub fn new(log: Arc<dyn EventLog>, home: &Path) -> Arc<Self> {
        let check = move || -> BoxFuture<Result<(), LogError>> {
            let log = Arc::clone(&log);
            Box::pin(async move { log.check().await })
        };
        Self::with(Box::new(check), home)
    }

    fn with(check_log: CheckLog, home: &Path) -> Arc<Self> {
        let state = State { reason: None, checked: Instant::now(), is_checking: false };
        Arc::new(Self { check_log, folder: format!("{}/", home.display()), state: Mutex::new(state) })
    }

    /// Whether the server is ready, or why not.
    pub(crate) async fn check(self: &Arc<Self>) -> Result<(), String> {
        if self.is_check_due() {
            let this = Arc::clone(self);
            // In a task of its own, since the client that asks may disconnect.
            let check = tokio::spawn(async move { this.check_now().await });
            if tokio::time::timeout(CHECK_WAIT, check).await.is_err() {
                self.set_reason(Some(NO_ANSWER.to_owned()));
            }
        }
        match &self.state().reason {
            None => Ok(()),
            Some(reason) => Err(reason.replace(&self.folder, "")),
        }
    }

    /// Notes that the log failed to write.
    pub(crate) fn write_failed(self: &Arc<Self>, error: &LogError) {
        match error {
            LogError::Full { .. }
            | LogError::ReadOnly { .. }
            | LogError::Replaced { .. }
            | LogError::Damaged { .. }
            | LogError::Busy
            | LogError::Unavailable { .. }
            | LogError::Database { .. }
            | LogError::Io { .. }
            | LogError::Closed => self.set_reason(Some(error.to_string())),
            // These concern one session, or a log that is not open yet.
            LogError::Conflict { .. }
            | LogError::Held { .. }
            | LogError::OtherWorkspace { .. }
            | LogError::NotHeld { .. }
            | LogError::UnknownSession(_)
            | LogError::Unreadable { .. }
            | LogError::InUse { .. }
            | LogError::Newer { .. } => {}
        }
    }

    /// Whether the caller has to check the log. It counts as being checked from now on.
    fn is_check_due(&self) -> bool {
        let mut state = self.state();
        let is_due = !state.is_checking && state.checked.elapsed() >= CHECK_INTERVAL;
        state.is_checking |= is_due;
        is_due
    }

    async fn check_now(self: Arc<Self>) {
        let checked = (self.check_log)().await;
        let mut state = self.state();
        (state.is_checking, state.checked) = (false, Instant::now());
        drop(state);
        self.set_reason(checked.err().map(|error| error.to_string()));
    }

    /// Sets why the server is not ready, and logs it if that is new. Starts to check regularly if it was ready before.
    fn set_reason(self: &Arc<Self>, reason: Option<String>) {
        let mut state = self.state();
        if state.reason == reason {
            return;
        }
        match &reason {
            Some(reason) => tracing::error!(reason, "not ready"),
            None => tracing::info!("ready again"),
        }
        let was_ready = state.reason.is_none();
        state.reason = reason;
        drop(state);
        if was_ready {
            tokio::spawn(check_until_ready(Arc::downgrade(self)));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves no half-made change: each change is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the log until the server is ready again, whether or not a client asks.
async fn check_until_ready(readiness: Weak<Readiness>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(readiness) = readiness.upgrade() else { return };
        if readiness.check().await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn however_often_clients_ask_the_log_is_checked_once_per_interval() {
        let checks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&checks);
        let check = move || -> BoxFuture<Result<(), LogError>> {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(()) })
        };
        let readiness = Readiness::with(Box::new(check), Path::new("/home"));
        let begun = Instant::now();
        readiness.state().checked = begun.checked_sub(CHECK_INTERVAL).unwrap();
        for _ in 0..10_000 {
            assert_eq!(readiness.check().await, Ok(()));
        }
        let most = 1 + begun.elapsed().as_secs() / CHECK_INTERVAL.as_secs();
        assert!((1..=most).contains(&u64::from(checks.load(Ordering::Relaxed))), "{checks:?} of {most}");
    }

    #[tokio::test]
    async fn a_failed_write_is_reported_at_once_without_the_folder() {
        let full = || LogError::Full { store: "/home/parlor.db".into() };
        let check = move || -> BoxFuture<Result<(), LogError>> { Box::pin(async move { Err(full()) }) };
        let readiness = Readiness::with(Box::new(check), Path::new("/home"));
        readiness.write_failed(&LogError::UnknownSession(parlor_vocab::SessionId::parse("s").unwrap()));
        assert_eq!(readiness.state().reason, None);
        readiness.write_failed(&full());
        let reason = readiness.check().await.unwrap_err();
        assert_eq!(reason, "no room left on the disk that holds \"parlor.db\"; free some and try again");
    }
}
