//! Whether messages can be recorded, and a line in the journal whenever that changes.
//!
//! Learnt from appends that fail, and from a look at the log: when somebody asks and the last look is a while ago, and
//! again and again as long as the server is not ready. So asking costs nothing, however often it is done.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use parlor_log::{EventLog, LogError};

/// How long what was found by a look at the log holds.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// How long a look may take before the server counts as not ready.
const LOOK_WAIT: Duration = Duration::from_secs(5);

/// Why, if a look takes longer.
const NO_ANSWER: &str = "the disk that holds parlor.db has not answered for 5 seconds";

/// Whether messages can be recorded.
pub(super) struct Readiness {
    look_at_log: LookAtLog,
    /// What texts name that need not be known to everybody who may ask.
    folder: String,
    state: Mutex<State>,
}

/// Whether the log can be written now. Waits for the disk.
type LookAtLog = Box<dyn Fn() -> BoxFuture<Result<(), LogError>> + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

struct State {
    /// Why they cannot be.
    reason: Option<String>,
    looked: Instant,
    /// Since when a look is under way, if one is.
    looking: Option<Instant>,
}

impl Readiness {
    /// That of a log in folder `home`, which was just opened.
    pub(super) fn of(log: Arc<dyn EventLog>, home: &Path) -> Arc<Self> {
        let look = move || -> BoxFuture<Result<(), LogError>> {
            let log = Arc::clone(&log);
            Box::pin(async move { log.check().await })
        };
        Self::with(Box::new(look), home)
    }

    fn with(look_at_log: LookAtLog, home: &Path) -> Arc<Self> {
        let state = State { reason: None, looked: Instant::now(), looking: None };
        Arc::new(Self { look_at_log, folder: format!("{}/", home.display()), state: Mutex::new(state) })
    }

    /// Whether messages can be recorded, or why not.
    pub(super) async fn ask(self: &Arc<Self>) -> Result<(), String> {
        if self.is_time_to_look() {
            let this = Arc::clone(self);
            // A task of its own: whoever asked may go away.
            let look = tokio::spawn(async move { this.look().await });
            if tokio::time::timeout(LOOK_WAIT, look).await.is_err() {
                self.change(Some(NO_ANSWER.to_owned()));
            }
        }
        match &self.state().reason {
            None => Ok(()),
            Some(reason) => Err(reason.replace(&self.folder, "")),
        }
    }

    /// The log has refused to write something.
    pub(super) fn write_failed(self: &Arc<Self>, error: &LogError) {
        match error {
            LogError::Full { .. }
            | LogError::ReadOnly { .. }
            | LogError::Replaced { .. }
            | LogError::Damaged { .. }
            | LogError::Busy
            | LogError::Database { .. }
            | LogError::Io { .. }
            | LogError::Closed => self.change(Some(error.to_string())),
            // These concern one session alone, or a log that is not open.
            LogError::Conflict { .. }
            | LogError::Held { .. }
            | LogError::NotHeld { .. }
            | LogError::UnknownSession(_)
            | LogError::Unreadable { .. }
            | LogError::InUse { .. }
            | LogError::Newer { .. } => {}
        }
    }

    fn is_time_to_look(&self) -> bool {
        let mut state = self.state();
        let is_time = state.looking.is_none() && state.looked.elapsed() >= LOOK_INTERVAL;
        if is_time {
            state.looking = Some(Instant::now());
        }
        is_time
    }

    async fn look(self: Arc<Self>) {
        let found = (self.look_at_log)().await;
        let mut state = self.state();
        (state.looking, state.looked) = (None, Instant::now());
        drop(state);
        self.change(found.err().map(|error| error.to_string()));
    }

    /// Takes note of what holds now, and says so if it did not before.
    fn change(self: &Arc<Self>, reason: Option<String>) {
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
            tokio::spawn(watch(Arc::downgrade(self)));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of it is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks until the server is ready again, whether or not somebody asks.
async fn watch(readiness: Weak<Readiness>) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let Some(readiness) = readiness.upgrade() else { return };
        if readiness.ask().await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn however_often_it_is_asked_the_log_is_looked_at_once_in_a_while() {
        let looks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&looks);
        let look = move || -> BoxFuture<Result<(), LogError>> {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(()) })
        };
        let readiness = Readiness::with(Box::new(look), Path::new("/home"));
        let begun = Instant::now();
        readiness.state().looked = begun.checked_sub(LOOK_INTERVAL).unwrap();
        for _ in 0..10_000 {
            assert_eq!(readiness.ask().await, Ok(()));
        }
        let most = 1 + begun.elapsed().as_secs() / LOOK_INTERVAL.as_secs();
        assert!((1..=most).contains(&u64::from(looks.load(Ordering::Relaxed))), "{looks:?} of {most}");
    }

    #[tokio::test]
    async fn a_write_that_failed_is_known_at_once_and_without_the_folder() {
        let full = || LogError::Full { path: "/home/parlor.db".into() };
        let look = move || -> BoxFuture<Result<(), LogError>> { Box::pin(async move { Err(full()) }) };
        let readiness = Readiness::with(Box::new(look), Path::new("/home"));
        readiness.write_failed(&LogError::UnknownSession(parlor_vocab::SessionId::parse("s").unwrap()));
        assert_eq!(readiness.state().reason, None);
        readiness.write_failed(&full());
        let reason = readiness.ask().await.unwrap_err();
        assert_eq!(reason, "no room left on the disk that holds \"parlor.db\"; free some and try again");
    }
}
