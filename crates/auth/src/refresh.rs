//! Tokens for use, renewed before they expire: one renewal at a time, whichever process needs it.

use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::Timestamp;

use crate::logins::{Inner, name_of};
use crate::record::Login;
use crate::time::later;
use crate::tokens::{NotRenewed, renew};
use crate::{AccessError, LoginManager, LoginProvider, Secret, SecretStoreError};

/// How long before it expires a token is renewed. Of one that lives shorter than twice as long, half
/// its life.
pub const REFRESH_MARGIN: Duration = Duration::from_secs(120);

impl LoginManager {
    /// A token that works, renewed if it is about to expire.
    pub async fn access(&self, provider: &str) -> Result<Secret, AccessError> {
        self.token(provider, None).await
    }

    /// A token in the place of one that the provider did not accept, although it should not have
    /// expired yet. If somebody else has renewed it meanwhile, it is that one.
    pub async fn replacement_token(&self, provider: &str, refused: &Secret) -> Result<Secret, AccessError> {
        self.token(provider, Some(refused.clone())).await
    }

    async fn token(&self, name: &str, refused: Option<Secret>) -> Result<Secret, AccessError> {
        let unknown = || AccessError::UnknownProvider { name: name.to_owned(), known: self.0.known() };
        let provider = self.0.provider(name).ok_or_else(unknown)?;
        if let Need::Nothing(token) = self.0.look(&provider, refused.as_ref()).await?.1 {
            return Ok(token);
        }
        // A provider may give a refresh token for the one it takes: if whoever asks goes away in
        // between, the new one must still be kept.
        let inner = Arc::clone(&self.0);
        let renewal = tokio::spawn(async move { inner.renew_alone(&provider, refused.as_ref()).await });
        renewal.await.unwrap_or_else(|error| Err(AccessError::Local(error.to_string())))
    }
}

/// What has to be done before a login can be used.
enum Need {
    /// Nothing: here it is.
    Nothing(Secret),
    /// It is to be renewed with this. What is there may still do, if that fails.
    Renewal { with: Secret, otherwise: Option<Secret> },
    /// It is over: there is nothing to renew it with.
    Login,
}

impl Inner {
    async fn look(
        &self,
        provider: &LoginProvider,
        refused: Option<&Secret>,
    ) -> Result<(Login, Need), AccessError> {
        let name = || provider.name.clone();
        let login = self.read(&name_of(&provider.name)).await.map_err(local)?;
        let login = login.ok_or_else(|| AccessError::LoggedOut { provider: name() })?;
        if let Some(reason) = &login.ended {
            return Err(AccessError::Ended { provider: name(), reason: reason.clone() });
        }
        let token = login.access.clone().ok_or_else(|| AccessError::LoggedOut { provider: name() })?;
        let need = need(&login, token, refused, self.time.now());
        Ok((login, need))
    }

    /// Renews, unless somebody else did so while we waited.
    async fn renew_alone(
        &self,
        provider: &LoginProvider,
        refused: Option<&Secret>,
    ) -> Result<Secret, AccessError> {
        let secret_name = name_of(&provider.name);
        let gate = self.gates.get(&provider.name).expect("each provider has a gate");
        let _turn = gate.lock().await;
        let _lock = self.lock(&secret_name).await.map_err(local)?;
        let (login, need) = self.look(provider, refused).await?;
        let (with, otherwise) = match need {
            Need::Nothing(token) => return Ok(token),
            Need::Renewal { with, otherwise } => (with, otherwise),
            Need::Login => {
                let reason = "it has expired and the provider gave nothing to renew it with".to_owned();
                return self.end(provider, login, reason).await;
            }
        };
        if let Some(what) = &provider.lacks {
            return otherwise.ok_or_else(|| AccessError::Local(what.clone()));
        }
        match renew(&self.http, provider, &self.redactor, &with).await {
            Ok(granted) => {
                let token = granted.access.clone();
                let login = granted.into_login(self.time.now(), Some(login));
                self.write(&secret_name, &login).await.map_err(local)?;
                Ok(token)
            }
            Err(NotRenewed::Ended(reason)) => self.end(provider, login, reason).await,
            Err(NotRenewed::Unavailable { status, reason }) => {
                let provider = provider.name.clone();
                otherwise.ok_or(AccessError::Unavailable { provider, status, reason })
            }
        }
    }

    /// Remembers that a login is over, and forgets its tokens.
    async fn end(
        &self,
        provider: &LoginProvider,
        login: Login,
        reason: String,
    ) -> Result<Secret, AccessError> {
        let ended =
            Login { access: None, refresh: None, expires_at: None, ended: Some(reason.clone()), ..login };
        self.write(&name_of(&provider.name), &ended).await.map_err(local)?;
        Err(AccessError::Ended { provider: provider.name.clone(), reason })
    }
}

fn need(login: &Login, token: Secret, refused: Option<&Secret>, now: Timestamp) -> Need {
    let is_refused = refused == Some(&token);
    let is_expired = login.expires_at.is_some_and(|at| at <= now);
    let is_due = login.expires_at.is_some_and(|at| at <= later(now, margin(login, at)));
    let usable = Some(token).filter(|_| !is_refused && !is_expired);
    match (usable, &login.refresh) {
        (Some(token), _) if !is_due => Need::Nothing(token),
        (otherwise, Some(with)) => Need::Renewal { with: with.clone(), otherwise },
        (Some(token), None) => Need::Nothing(token),
        (None, None) => Need::Login,
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

    fn needed(lifetime: Option<i64>, refresh: bool, now: i64, refused: Option<&str>) -> &'static str {
        let token = Secret::new("a");
        let login = Login {
            access: Some(token.clone()),
            refresh: refresh.then(|| Secret::new("r")),
            expires_at: lifetime.map(|seconds| Timestamp(seconds * 1000)),
            obtained_at: Timestamp(0),
            account: None,
            ended: None,
        };
        match need(&login, token, refused.map(Secret::new).as_ref(), Timestamp(now * 1000)) {
            Need::Nothing(_) => "nothing",
            Need::Renewal { otherwise: Some(_), .. } => "renewal while it works",
            Need::Renewal { otherwise: None, .. } => "renewal",
            Need::Login => "login",
        }
    }

    #[test]
    fn a_token_is_renewed_in_time() {
        let margin = i64::try_from(REFRESH_MARGIN.as_secs()).unwrap();
        assert_eq!(needed(Some(3600), true, 3600 - margin - 1, None), "nothing");
        assert_eq!(needed(Some(3600), true, 3600 - margin, None), "renewal while it works");
        assert_eq!(needed(Some(3600), true, 3600, None), "renewal");
        assert_eq!(needed(None, true, 1 << 40, None), "nothing");
    }

    #[test]
    fn one_that_lives_shortly_is_used_for_half_its_life() {
        assert_eq!(needed(Some(60), true, 29, None), "nothing");
        assert_eq!(needed(Some(60), true, 30, None), "renewal while it works");
    }

    #[test]
    fn what_cannot_be_renewed_is_used_up() {
        assert_eq!(needed(Some(3600), false, 3599, None), "nothing");
        assert_eq!(needed(Some(3600), false, 3600, None), "login");
    }

    #[test]
    fn a_refused_token_is_renewed_and_another_ones_refusal_does_not_count() {
        assert_eq!(needed(Some(3600), true, 0, Some("a")), "renewal");
        assert_eq!(needed(Some(3600), true, 0, Some("older")), "nothing");
        assert_eq!(needed(None, false, 0, Some("a")), "login");
    }
}
