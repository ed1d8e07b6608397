//! What is asked of a keyring, and how long it may take to answer.
//!
//! Nothing is asked before a secret is to be kept there, or known to be there. Each question has a thread
//! of its own, because a bus that does not answer cannot be left otherwise.

use std::fmt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::SecretName;
use crate::Secret;

/// How long the keyring may take for one secret, unless it asks for a password.
pub const KEYRING_WAIT: Duration = Duration::from_secs(5);

/// How long it may take if it is locked and asks for a password.
pub const UNLOCK_WAIT: Duration = Duration::from_secs(30);

/// How long a keyring that did not answer is left alone.
pub const KEYRING_RETRY_WAIT: Duration = Duration::from_secs(60);

/// What a thread says of its question: that a password is asked for, and the answer.
const NEWS: usize = 2;

/// One secret, as the keyring knows it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The state folder: each has its own.
    pub(super) home: String,
}

/// A keyring. May block for ever; calls `asks` before it asks for a password. What fails says why.
pub(super) trait Service: fmt::Debug + Send + Sync {
    fn read(&self, entry: &Entry, asks: &dyn Fn()) -> Result<Option<Secret>, String>;
    fn write(&self, entry: &Entry, secret: &Secret, asks: &dyn Fn()) -> Result<(), String>;
    /// Says whether there was one.
    fn remove(&self, entry: &Entry, asks: &dyn Fn()) -> Result<bool, String>;
}

/// The keyring, for one state folder.
#[derive(Debug)]
pub(super) struct Keyring {
    home: String,
    /// Or why there is none.
    service: Result<Arc<dyn Service>, String>,
    wait: Duration,
    /// When it did not answer.
    silent: Mutex<Option<Instant>>,
}

enum KeyringNews<T> {
    Asks,
    Answer(Result<T, String>),
}

impl Keyring {
    pub(super) fn new(home: &Path, service: Result<Arc<dyn Service>, String>) -> Self {
        let home = home.display().to_string();
        Self { home, service, wait: KEYRING_WAIT, silent: Mutex::default() }
    }

    /// Whether there seems to be one. Asks nobody.
    pub(super) fn is_there(&self) -> bool {
        self.service.is_ok()
    }

    pub(super) fn read(&self, name: &SecretName) -> Result<Option<Secret>, String> {
        let entry = self.entry(name);
        self.ask(move |service, asks| service.read(&entry, asks))
    }

    pub(super) fn write(&self, name: &SecretName, secret: &Secret) -> Result<(), String> {
        let (entry, secret) = (self.entry(name), secret.clone());
        self.ask(move |service, asks| service.write(&entry, &secret, asks))
    }

    pub(super) fn remove(&self, name: &SecretName) -> Result<bool, String> {
        let entry = self.entry(name);
        self.ask(move |service, asks| service.remove(&entry, asks))
    }

    fn entry(&self, name: &SecretName) -> Entry {
        Entry { name: name.as_str().to_owned(), home: self.home.clone() }
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Service, &dyn Fn()) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let service = Arc::clone(self.service.as_ref().map_err(Clone::clone)?);
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || format!("it did not answer within {} seconds", self.wait.as_secs());
        if silent.is_some_and(|since| since.elapsed() < KEYRING_RETRY_WAIT) {
            return Err(none());
        }
        let (news, heard) = sync_channel(NEWS);
        let work = move || {
            let asks = || drop(news.send(KeyringNews::Asks));
            let answer = question(service.as_ref(), &asks);
            // Nobody listens any more if it took too long.
            let _ = news.send(KeyringNews::Answer(answer));
        };
        thread::Builder::new().name("keyring".to_owned()).spawn(work).map_err(|error| error.to_string())?;
        let mut wait = self.wait;
        loop {
            match heard.recv_timeout(wait) {
                Ok(KeyringNews::Asks) => wait = UNLOCK_WAIT + self.wait,
                Ok(KeyringNews::Answer(answer)) => {
                    *silent = None;
                    return answer;
                }
                Err(RecvTimeoutError::Timeout) => {
                    *silent = Some(Instant::now());
                    return Err(none());
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

    /// A keyring of a test.
    #[derive(Debug, Default)]
    pub(in super::super) struct Fake {
        pub(in super::super) secrets: Mutex<BTreeMap<String, Secret>>,
        /// What it says in the place of an answer.
        pub(in super::super) refuses: Mutex<Option<String>>,
    }

    impl Fake {
        fn answer(&self) -> Result<std::sync::MutexGuard<'_, BTreeMap<String, Secret>>, String> {
            self.refuses.lock().unwrap().clone().map_or(Ok(()), Err)?;
            Ok(self.secrets.lock().unwrap())
        }
    }

    impl Service for Fake {
        fn read(&self, entry: &Entry, _asks: &dyn Fn()) -> Result<Option<Secret>, String> {
            Ok(self.answer()?.get(&entry.name).cloned())
        }

        fn write(&self, entry: &Entry, secret: &Secret, asks: &dyn Fn()) -> Result<(), String> {
            asks();
            self.answer()?.insert(entry.name.clone(), secret.clone());
            Ok(())
        }

        fn remove(&self, entry: &Entry, _asks: &dyn Fn()) -> Result<bool, String> {
            Ok(self.answer()?.remove(&entry.name).is_some())
        }
    }

    /// A keyring that answers when the test has seen that it does not.
    #[derive(Debug)]
    struct Silent(Barrier);

    impl Service for Silent {
        fn read(&self, _entry: &Entry, _asks: &dyn Fn()) -> Result<Option<Secret>, String> {
            self.0.wait();
            Ok(None)
        }

        fn write(&self, _entry: &Entry, _secret: &Secret, _asks: &dyn Fn()) -> Result<(), String> {
            unreachable!("it is only read")
        }

        fn remove(&self, _entry: &Entry, _asks: &dyn Fn()) -> Result<bool, String> {
            unreachable!("it is only read")
        }
    }

    #[test]
    fn one_that_does_not_answer_is_left_and_then_left_alone() {
        let silent = Arc::new(Silent(Barrier::new(2)));
        let mut keyring = Keyring::new(Path::new("/home"), Ok(Arc::clone(&silent) as _));
        keyring.wait = Duration::from_millis(20);
        let name = SecretName::key("x").unwrap();
        for _ in 0..3 {
            // The second and third question never get to it: the barrier has room for one.
            let error = keyring.read(&name).unwrap_err();
            assert!(error.contains("did not answer"), "{error}");
        }
        silent.0.wait();
    }

    #[test]
    fn where_there_is_none_it_is_said_why() {
        let keyring = Keyring::new(Path::new("/home"), Err("there is no session bus".to_owned()));
        assert!(!keyring.is_there());
        assert_eq!(keyring.read(&SecretName::key("x").unwrap()).unwrap_err(), "there is no session bus");
    }
}
