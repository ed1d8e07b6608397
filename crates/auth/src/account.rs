//! The account of a login, as the ID token describes it.
//!
//! The signature of the ID token is not checked: the provider itself sent it over the same connection as the other
//! tokens, and parlor only displays its content.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The account of a login. Each field is `None` if the ID token does not contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The provider's identifier of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The name of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The URL of a picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<String>,
}

impl Account {
    /// The text by which people recognize the account: the mail address, else the name, else the id.
    pub fn label(&self) -> Option<&str> {
        [&self.email, &self.name, &self.id].into_iter().find_map(|text| text.as_deref())
    }

    /// Reads the claims of an ID token. `claim` is the path of the claim with the id; `sub` if it is empty.
    pub(crate) fn from_id_token(token: &str, claim: &[String]) -> Option<Self> {
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
        let account = Account::from_id_token(&token, &[]).unwrap();
        assert_eq!(
            (account.id.as_deref(), account.email.as_deref(), account.name.as_deref()),
            (Some("7"), Some("a@b"), None)
        );
        assert_eq!(account.label(), Some("a@b"));
        let claim = ["https://x/auth".to_owned(), "account".to_owned()];
        assert_eq!(Account::from_id_token(&token, &claim).unwrap().id.as_deref(), Some("acc_1"));
        assert_eq!(Account::from_id_token(&token, &["none".to_owned()]).unwrap().id, None);
    }

    #[test]
    fn an_invalid_token_gives_no_account() {
        for bad in ["", "a", "a.b.c", "a.!.c", &token("[")] {
            assert_eq!(Account::from_id_token(bad, &[]), None, "{bad}");
        }
    }
}
