//! Access tokens: renews them before they expire, one renewal at a time across all processes.

use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::Timestamp;

use crate::login_manager::Inner;
use crate::record::Login;
use crate::time::later;
use crate::tokens::{RenewalError, renew};
use crate::{AccessError, LoginManager, LoginProvider, Secret, SecretStoreError};

/// How long before its expiry a token is renewed. A token that is valid for less than twice this time is renewed
/// after half of its lifetime.
pub const REFRESH_MARGIN: Duration = Duration::from_secs(120);

/// How long a new token is used, whatever lifetime the provider gives it, unless the provider refuses it. Otherwise a
/// provider that grants tokens for no time would be asked before each request.
pub const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(30);

impl LoginManager {
    /// A valid access token. Renews it if it is about to expire.
    pub async fn access_token(&self, provider: &str) -> Result<Secret, AccessError> {
        self.token(provider, None).await
    }

    /// Another access token, after the provider refused the token `refused` before its expiry. Renews it, unless
    /// another task or process has done so already.
    pub async fn replacement_token(&self, provider: &str, refused: &Secret) -> Result<Secret, AccessError> {
        self.token(provider, Some(refused.clone())).await
    }

    async fn token(&self, name: &str, refused: Option<Secret>) -> Result<Secret, AccessError> {
        let unknown = || AccessError::UnknownProvider { name: name.to_owned(), known: self.0.known() };
        let provider = self.0.provider(name).ok_or_else(unknown)?;
        if let Action::Use(token) = self.0.next_action(&provider, refused.as_ref()).await?.1 {
            return Ok(token);
        }
        // A renewal may invalidate the old refresh token. It runs in a task of its own, so that the new one is stored
        // even if the caller is dropped.
        let inner = Arc::clone(&self.0);
        let renewal = tokio::spawn(async move { inner.renew_exclusively(&provider, refused.as_ref()).await });
        renewal.await.unwrap_or_else(|error| Err(AccessError::Local(error.to_string())))
    }
}

/// What to do with a stored login.
enum Action {
    /// Use this access token.
    Use(Secret),
    /// Renew the login. If that fails, `fallback` is still valid for a while.
    Renew { refresh_token: Secret, fallback: Option<Secret> },
    /// End the login: the token is invalid and there is no refresh token.
    End,
}

impl Inner {
    async fn next_action(
        &self,
        provider: &LoginProvider,
        refused: Option<&Secret>,
    ) -> Result<(Login, Action), AccessError> {
        let name = || provider.name.clone();
        let login = self.read(&provider.secret_name()).await.map_err(local)?;
        let login = login.ok_or_else(|| AccessError::LoggedOut { provider: name() })?;
        if let Some(reason) = &login.ended {
            return Err(AccessError::Ended { provider: name(), reason: reason.clone() });
        }
        let token = login.access.clone().ok_or_else(|| AccessError::LoggedOut { provider: name() })?;
        let action = action(&login, token, refused, self.time.now());
        Ok((login, action))
    }

    /// Renews the login, unless another task or process did so while this one waited for the locks.
    async fn renew_exclusively(
        &self,
        provider: &LoginProvider,
        refused: Option<&Secret>,
    ) -> Result<Secret, AccessError> {
        let secret_name = provider.secret_name();
        let task_lock = self.renewal_locks.get(&provider.name).expect("each provider has a lock");
        let _task_lock = task_lock.lock().await;
        let _file_lock = self.lock(&secret_name).await.map_err(local)?;
        let (login, action) = self.next_action(provider, refused).await?;
        let (refresh_token, fallback) = match action {
            Action::Use(token) => return Ok(token),
            Action::Renew { refresh_token, fallback } => (refresh_token, fallback),
            Action::End => {
                let reason = "it has expired and the provider gave nothing to renew it with".to_owned();
                return self.end(provider, login, reason).await;
            }
        };
        if let Some(fix) = &provider.missing_secret {
            return fallback.ok_or_else(|| AccessError::Local(fix.clone()));
        }
        match renew(&self.http, provider, self.redactor(&provider.name), &refresh_token).await {
            Ok(granted) => {
                let token = granted.access.clone();
                let login = granted.into_login(self.time.now(), Some(login));
                self.write(&secret_name, &login).await.map_err(local)?;
                Ok(token)
            }
            Err(RenewalError::Ended(reason)) => self.end(provider, login, reason).await,
            Err(RenewalError::Unavailable { status, reason }) => {
                let provider = provider.name.clone();
                fallback.ok_or(AccessError::Unavailable { provider, status, reason })
            }
        }
    }

    /// Marks a login as ended and deletes its tokens.
    async fn end(
        &self,
        provider: &LoginProvider,
        login: Login,
        reason: String,
    ) -> Result<Secret, AccessError> {
        let ended =
            Login { access: None, refresh: None, expires_at: None, ended: Some(reason.clone()), ..login };
        self.write(&provider.secret_name(), &ended).await.map_err(local)?;
        Err(AccessError::Ended { provider: provider.name.clone(), reason })
    }
}

fn action(login: &Login, token: Secret, refused: Option<&Secret>, now: Timestamp) -> Action {
    let is_refused = refused == Some(&token);
    // If the clock was set back, the login seems to be of the future and is not new.
    let is_new = (login.obtained_at..later(login.obtained_at, MIN_RENEWAL_INTERVAL)).contains(&now);
    if is_new && !is_refused {
        return Action::Use(token);
    }
    let is_expired = login.expires_at.is_some_and(|at| at <= now);
    let is_due = login.expires_at.is_some_and(|at| at <= later(now, margin(login, at)));
    let usable = Some(token).filter(|_| !is_refused && !is_expired);
    match (usable, &login.refresh) {
        (Some(token), _) if !is_due => Action::Use(token),
        (fallback, Some(refresh)) => Action::Renew { refresh_token: refresh.clone(), fallback },
        (Some(token), None) => Action::Use(token),
        (None, None) => Action::End,
    }
}

fn margin(login: &Login, expires_at: Timestamp) -> Duration {
    let lifetime = expires_at.0.saturating_sub(login.obtained_at.0);
    REFRESH_MARGIN.min(Duration::from_millis(u64::try_from(lifetime).unwrap_or(0)) / 2)
}

fn local(error: SecretStoreError) -> AccessError {
    AccessError::Local(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action_name(lifetime: Option<i64>, refresh: bool, now: i64, refused: Option<&str>) -> &'static str {
        let token = Secret::new("a");
        let login = Login {
            access: Some(token.clone()),
            refresh: refresh.then(|| Secret::new("r")),
            expires_at: lifetime.map(|seconds| Timestamp(seconds * 1000)),
            obtained_at: Timestamp(0),
            account: None,
            ended: None,
            client: None,
        };
        match action(&login, token, refused.map(Secret::new).as_ref(), Timestamp(now * 1000)) {
            Action::Use(_) => "use",
            Action::Renew { fallback: Some(_), .. } => "renew with fallback",
            Action::Renew { fallback: None, .. } => "renew",
            Action::End => "end",
        }
    }

    #[test]
    fn a_token_is_renewed_before_it_expires() {
        let margin = i64::try_from(REFRESH_MARGIN.as_secs()).unwrap();
        assert_eq!(action_name(Some(3600), true, 3600 - margin - 1, None), "use");
        assert_eq!(action_name(Some(3600), true, 3600 - margin, None), "renew with fallback");
        assert_eq!(action_name(Some(3600), true, 3600, None), "renew");
        assert_eq!(action_name(None, true, 1 << 40, None), "use");
    }

    #[test]
    fn a_short_lived_token_is_renewed_after_half_its_lifetime() {
        assert_eq!(action_name(Some(60), true, 29, None), "use");
        assert_eq!(action_name(Some(60), true, 30, None), "renew with fallback");
    }

    #[test]
    fn a_new_token_is_used_for_a_while_even_if_the_provider_gave_it_no_time() {
        let interval = i64::try_from(MIN_RENEWAL_INTERVAL.as_secs()).unwrap();
        for refresh in [true, false] {
            assert_eq!(action_name(Some(0), refresh, 0, None), "use");
            assert_eq!(action_name(Some(0), refresh, interval - 1, None), "use");
        }
        assert_eq!(action_name(Some(0), true, interval, None), "renew");
        assert_eq!(action_name(Some(0), false, interval, None), "end");
        assert_eq!(action_name(Some(0), true, 0, Some("a")), "renew", "the provider refused it");
        assert_eq!(action_name(Some(-9), true, -1, None), "renew", "the clock was set back");
    }

    #[test]
    fn a_token_without_refresh_token_is_used_until_it_expires() {
        assert_eq!(action_name(Some(3600), false, 3599, None), "use");
        assert_eq!(action_name(Some(3600), false, 3600, None), "end");
    }

    #[test]
    fn a_refused_token_is_renewed_unless_it_was_replaced_already() {
        assert_eq!(action_name(Some(3600), true, 0, Some("a")), "renew");
        assert_eq!(action_name(Some(3600), true, 0, Some("older")), "use");
        assert_eq!(action_name(None, false, 0, Some("a")), "end");
    }
}
