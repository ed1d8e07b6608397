//! The login to a web service, as the client of MCP servers needs it.

use async_trait::async_trait;

/// Gives the token of a login to one web service. Used as `dyn`, because this crate knows no logins.
#[async_trait]
pub trait McpLogin: Send + Sync {
    /// A valid token, or `None` if nobody has logged in. The error is for people.
    async fn token(&self) -> Result<Option<String>, String>;

    /// Another token, after the service refused `refused`. `None` if nobody has logged in. The error is for people.
    async fn replacement(&self, refused: &str) -> Result<Option<String>, String>;

    /// What a person has to do if the service wants a login. `headers` are the values of `WWW-Authenticate`.
    fn advice(&self, headers: &[String]) -> String;
}
