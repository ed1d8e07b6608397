//! Access to the system's keyring, with time limits.
//!
//! The keyring is used only to store a secret, or for a secret that is known to be there. Each request runs on a thread of
//! its own, because a request to a bus that does not answer cannot be cancelled.

use std::fmt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::SecretName;
use crate::Secret;

/// How long one request may take, unless the keyring prompts for a password.
pub const KEYRING_WAIT: Duration = Duration::from_secs(5);

/// How long a password prompt may take.
pub const UNLOCK_WAIT: Duration = Duration::from_secs(30);

/// For how long no request is sent after the keyring did not answer.
pub const KEYRING_RETRY_WAIT: Duration = Duration::from_secs(60);

/// The capacity of a request's channel: the password prompt and the answer.
const REQUEST_EVENTS: usize = 2;

/// The key of a secret in the keyring.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The state folder. Each one has its own secrets.
    pub(super) home: String,
}

/// A keyring implementation. Its calls may block forever. They call `before_prompt` before they prompt for a
/// password, and fail with a text for people.
pub(super) trait KeyringBackend: fmt::Debug + Send + Sync {
    fn read(&self, entry: &Entry, before_prompt: &dyn Fn()) -> Result<Option<Secret>, String>;
    fn write(&self, entry: &Entry, secret: &Secret, before_prompt: &dyn Fn()) -> Result<(), String>;
    /// Returns whether the secret existed.
    fn remove(&self, entry: &Entry, before_prompt: &dyn Fn()) -> Result<bool, String>;
}

/// The keyring of one state folder.
#[derive(Debug)]
pub(super) struct Keyring {
    home: String,
    /// `Err` with the reason if no keyring is available.
    backend: Result<Arc<dyn KeyringBackend>, String>,
    wait: Duration,
    /// When the last request timed out, if it did.
    timed_out_at: Mutex<Option<Instant>>,
}

/// What the thread of a request reports.
enum RequestEvent<T> {
    Prompting,
    Answer(Result<T, String>),
}

impl Keyring {
    pub(super) fn new(home: &Path, backend: Result<Arc<dyn KeyringBackend>, String>) -> Self {
        let home = home.display().to_string();
        Self { home, backend, wait: KEYRING_WAIT, timed_out_at: Mutex::default() }
    }

    /// Whether a keyring seems to be available. Sends no request.
    pub(super) fn is_available(&self) -> bool {
        self.backend.is_ok()
    }

    pub(super) fn read(&self, name: &SecretName) -> Result<Option<Secret>, String> {
        let entry = self.entry(name);
        self.request(move |backend, before_prompt| backend.read(&entry, before_prompt))
    }

    pub(super) fn write(&self, name: &SecretName, secret: &Secret) -> Result<(), String> {
        let (entry, secret) = (self.entry(name), secret.clone());
        self.request(move |backend, before_prompt| backend.write(&entry, &secret, before_prompt))
    }

    pub(super) fn remove(&self, name: &SecretName) -> Result<bool, String> {
        let entry = self.entry(name);
        self.request(move |backend, before_prompt| backend.remove(&entry, before_prompt))
    }

    fn entry(&self, name: &SecretName) -> Entry {
        Entry { name: name.as_str().to_owned(), home: self.home.clone() }
    }

    fn request<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn KeyringBackend, &dyn Fn()) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let backend = Arc::clone(self.backend.as_ref().map_err(Clone::clone)?);
        let mut timed_out_at = self.timed_out_at.lock().unwrap_or_else(PoisonError::into_inner);
        let timed_out = || format!("it did not answer within {} seconds", self.wait.as_secs());
        if timed_out_at.is_some_and(|at| at.elapsed() < KEYRING_RETRY_WAIT) {
            return Err(timed_out());
        }
        let (sender, events) = sync_channel(REQUEST_EVENTS);
        let run = move || {
            let before_prompt = || drop(sender.send(RequestEvent::Prompting));
            let answer = work(backend.as_ref(), &before_prompt);
            // After a timeout the receiver is dropped.
            let _ = sender.send(RequestEvent::Answer(answer));
        };
        thread::Builder::new().name("keyring".to_owned()).spawn(run).map_err(|error| error.to_string())?;
        let mut wait = self.wait;
        loop {
            match events.recv_timeout(wait) {
                Ok(RequestEvent::Prompting) => wait = UNLOCK_WAIT + self.wait,
                Ok(RequestEvent::Answer(answer)) => {
                    *timed_out_at = None;
                    return answer;
                }
                Err(RecvTimeoutError::Timeout) => {
                    *timed_out_at = Some(Instant::now());
                    return Err(timed_out());
                }
                Err(RecvTimeoutError::Disconnected) => return Err("its library failed".to_owned()),
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::Barrier;

    use super::*;

    /// A keyring in memory.
    #[derive(Debug, Default)]
    pub(in super::super) struct FakeKeyring {
        pub(in super::super) secrets: Mutex<BTreeMap<String, Secret>>,
        /// The error with which all requests fail.
        pub(in super::super) error: Mutex<Option<String>>,
    }

    impl FakeKeyring {
        fn open(&self) -> Result<std::sync::MutexGuard<'_, BTreeMap<String, Secret>>, String> {
            self.error.lock().unwrap().clone().map_or(Ok(()), Err)?;
            Ok(self.secrets.lock().unwrap())
        }
    }

    impl KeyringBackend for FakeKeyring {
        fn read(&self, entry: &Entry, _before_prompt: &dyn Fn()) -> Result<Option<Secret>, String> {
            Ok(self.open()?.get(&entry.name).cloned())
        }

        fn write(&self, entry: &Entry, secret: &Secret, before_prompt: &dyn Fn()) -> Result<(), String> {
            before_prompt();
            self.open()?.insert(entry.name.clone(), secret.clone());
            Ok(())
        }

        fn remove(&self, entry: &Entry, _before_prompt: &dyn Fn()) -> Result<bool, String> {
            Ok(self.open()?.remove(&entry.name).is_some())
        }
    }

    /// A keyring that answers only when the test reaches the barrier.
    #[derive(Debug)]
    struct SilentKeyring(Barrier);

    impl KeyringBackend for SilentKeyring {
        fn read(&self, _entry: &Entry, _before_prompt: &dyn Fn()) -> Result<Option<Secret>, String> {
            self.0.wait();
            Ok(None)
        }

        fn write(&self, _entry: &Entry, _secret: &Secret, _before_prompt: &dyn Fn()) -> Result<(), String> {
            unreachable!("the test only reads")
        }

        fn remove(&self, _entry: &Entry, _before_prompt: &dyn Fn()) -> Result<bool, String> {
            unreachable!("the test only reads")
        }
    }

    #[test]
    fn a_keyring_that_does_not_answer_gets_no_further_requests() {
        let silent = Arc::new(SilentKeyring(Barrier::new(2)));
        let mut keyring = Keyring::new(Path::new("/home"), Ok(Arc::clone(&silent) as _));
        keyring.wait = Duration::from_millis(20);
        let name = SecretName::key("x").unwrap();
        for _ in 0..3 {
            // The second and third requests are not sent. The barrier would let only one pass.
            let error = keyring.read(&name).unwrap_err();
            assert!(error.contains("did not answer"), "{error}");
        }
        silent.0.wait();
    }

    #[test]
    fn a_missing_keyring_fails_with_the_reason() {
        let keyring = Keyring::new(Path::new("/home"), Err("there is no session bus".to_owned()));
        assert!(!keyring.is_available());
        assert_eq!(keyring.read(&SecretName::key("x").unwrap()).unwrap_err(), "there is no session bus");
    }
}
