//! Whose login it is, as far as the ID token tells.
//!
//! The signature of the token is not checked: it came from the provider itself, over the connection
//! that the other tokens came over, and nothing is decided by it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whose login it is. What the provider does not tell is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// What the provider calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The name of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address of a picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<String>,
}

impl Account {
    /// The name that people know best.
    pub fn label(&self) -> Option<&str> {
        [&self.email, &self.name, &self.id].into_iter().find_map(|text| text.as_deref())
    }

    /// What an ID token says. The account is named where `claim` leads to, or by `sub`.
    pub(crate) fn of_id_token(token: &str, claim: &[String]) -> Option<Self> {
        let claims = token.split('.').nth(1)?;
        let claims = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(claims.trim_end_matches('=')).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let text = |value: Option<&Value>| value?.as_str().map(str::to_owned);
        let chosen = claim.iter().try_fold(&claims, |inside, name| inside.get(name));
        let id = if claim.is_empty() { text(claims.get("sub")) } else { text(chosen) };
        Some(Self {
            id,
            email: text(claims.get("email")),
            name: text(claims.get("name")),
            picture: text(claims.get("picture")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.sig", base64_simd::URL_SAFE_NO_PAD.encode_to_string(claims))
    }

    #[test]
    fn the_account_is_read_from_the_claims() {
        let token = token(r#"{"sub":"7","email":"a@b","https://x/auth":{"account":"acc_1"},"name":3}"#);
        let account = Account::of_id_token(&token, &[]).unwrap();
        assert_eq!(
            (account.id.as_deref(), account.email.as_deref(), account.name.as_deref()),
            (Some("7"), Some("a@b"), None)
        );
        assert_eq!(account.label(), Some("a@b"));
        let claim = ["https://x/auth".to_owned(), "account".to_owned()];
        assert_eq!(Account::of_id_token(&token, &claim).unwrap().id.as_deref(), Some("acc_1"));
        assert_eq!(Account::of_id_token(&token, &["none".to_owned()]).unwrap().id, None);
    }

    #[test]
    fn what_is_no_token_tells_nothing() {
        for bad in ["", "a", "a.b.c", "a.!.c", &token("[")] {
            assert_eq!(Account::of_id_token(bad, &[]), None, "{bad}");
        }
    }
}
