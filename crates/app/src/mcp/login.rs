//! `parlor mcp login` and `parlor mcp logout`: logins to MCP servers that are web services.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use async_trait::async_trait;
use clap::Args;
use parlor_auth::{Challenge, ResourceDeps, ResourceLogin, ResourceServer, Secret, SecretName};
use parlor_log::SystemClock;
use parlor_tools::McpLogin;

use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;
use crate::login::{follow, is_own_user, with_home};

/// The arguments of `parlor mcp login`.
#[derive(Args)]
pub(super) struct LoginOptions {
    /// The name of the server
    name: String,
    /// The client id that the authorization server gave you, if it lets nobody register
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// The environment variable with the secret of that client id
    #[arg(long, value_name = "VARIABLE", requires = "client_id")]
    client_secret_env: Option<String>,
    /// A scope to ask for beside those that the server names; may be given several times
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// Print the address without opening a browser
    #[arg(long)]
    no_open: bool,
}

/// The login to a server of the settings, for its client.
pub(crate) struct ServerLogin {
    name: String,
    login: ResourceLogin,
}

/// The login to the server `name`, if it is a web service whose settings have no token. The store of secrets does not have
/// names that begin with `-` or `_`, so there is no login for such a server.
pub(crate) fn server_login(home: &Home, name: &str) -> Option<Arc<ServerLogin>> {
    SecretName::server(name)?;
    let login = ResourceLogin::new(server(home, name)?, deps(home));
    Some(Arc::new(ServerLogin { name: name.to_owned(), login }))
}

#[async_trait]
impl McpLogin for ServerLogin {
    async fn token(&self) -> Result<Option<String>, String> {
        let token = self.login.access_token().await;
        token.map(|token| token.map(|token| token.expose().to_owned())).map_err(|error| self.explain(&error))
    }

    async fn replacement(&self, refused: &str) -> Result<Option<String>, String> {
        let token = self.login.replacement_token(&Secret::new(refused)).await;
        token.map(|token| token.map(|token| token.expose().to_owned())).map_err(|error| self.explain(&error))
    }

    fn advice(&self, headers: &[String]) -> String {
        let challenge = Challenge::parse(headers.iter().map(String::as_str)).unwrap_or_default();
        // Only letters of a shell's plain words: the text is meant to be copied.
        let is_plain = |scope: &String| {
            scope.chars().all(|c| c.is_ascii_alphanumeric() || ":/._-".contains(c)) && scope.len() <= 100
        };
        let scopes = challenge.scopes().into_iter().filter(is_plain).take(20);
        let scopes: String = scopes.map(|scope| format!(" --scope {scope}")).collect();
        format!("run: parlor mcp login {}{scopes}", self.name)
    }
}

impl ServerLogin {
    /// The error with the command for servers.
    fn explain(&self, error: &parlor_auth::AccessError) -> String {
        error.to_string().replace("parlor login", "parlor mcp login")
    }
}

fn server(home: &Home, name: &str) -> Option<ResourceServer> {
    let (url, headers) = home.config().mcp.get(name)?.login_target()?;
    let headers = headers.iter().map(|(name, value)| (name.clone(), Secret::new(value.as_str())));
    let (name, url) = (name.to_owned(), url.to_owned());
    Some(ResourceServer { name, url, headers: headers.collect(), ..ResourceServer::default() })
}

fn deps(home: &Home) -> ResourceDeps {
    ResourceDeps {
        store: home.keys().store().clone(),
        clock: Arc::new(SystemClock),
        redactor: home.keys().redactor().clone(),
        admits_peer: Arc::new(is_own_user),
    }
}

fn known_server(home: &Home, name: &str) -> anyhow::Result<ResourceServer> {
    if !home.config().mcp.contains_key(name) {
        bail!("there is no server {name:?} in parlor.toml; parlor mcp list names them");
    }
    server(home, name).with_context(|| {
        format!("{name} needs no login: it is a program, or its headers in parlor.toml have a token already")
    })
}

/// Logs in to a server.
pub(super) fn log_in(
    environment: &Environment,
    options: &LoginOptions,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    with_home(environment, async |home| {
        let client_secret = match &options.client_secret_env {
            None => None,
            Some(variable) => {
                let secret = Environment::secret(variable);
                Some(Secret::new(secret.with_context(|| format!("{variable} is not set"))?))
            }
        };
        let server = ResourceServer {
            client_id: options.client_id.clone(),
            client_secret,
            scopes: options.scope.clone(),
            ..known_server(home, &options.name)?
        };
        let flow = ResourceLogin::new(server, deps(home)).start().await?;
        follow(environment, home, flow, options.no_open, console, out).await
    })
}

/// Deletes the login to a server.
pub(super) fn log_out(
    environment: &Environment,
    name: &str,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    with_home(environment, async |home| {
        let login = ResourceLogin::new(known_server(home, name)?, deps(home));
        let text = if login.logout().await? { "Logged out of" } else { "There was no login to" };
        writeln!(out, "{text} {name}.")?;
        Ok(ExitCode::SUCCESS)
    })
}
