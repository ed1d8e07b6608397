//! The authorization server `oidc-provider` as a child process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::home::Home;

/// The secret of the confidential client.
pub(crate) const CLIENT_SECRET: &str = "client-s3cret-of-the-test/+%";

/// A running authorization server. Killed on drop.
pub(crate) struct OidcServer {
    child: Child,
    issuer: String,
}

impl OidcServer {
    pub(crate) fn start() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/auth");
        assert!(folder.join("node_modules").is_dir(), "oidc-provider is not installed: run make setup");
        let mut command = Command::new("node");
        command.arg("server.mjs").current_dir(folder).env("TEST_CLIENT_SECRET", CLIENT_SECRET);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        Self { child, issuer: started["issuer"].as_str().unwrap().to_owned() }
    }

    /// Writes a `parlor.toml` with the login `x` of this server; `client` is `public` or `confidential`.
    pub(crate) fn configure(&self, home: &Home, client: &str) {
        let issuer = &self.issuer;
        let secret = if client == "confidential" { "client_secret_env = \"TEST_CLIENT_SECRET\"" } else { "" };
        home.configure(
            "parlor.toml",
            &format!(
                "[auth.x]\nclient_id = \"{client}\"\n{secret}\nauthorize_url = \"{issuer}/auth\"\n\
                 token_url = \"{issuer}/token\"\ndevice_url = \"{issuer}/device/auth\"\n\
                 revoke_url = \"{issuer}/token/revocation\"\nscopes = [\"openid\", \"email\", \"offline_access\"]\n\
                 authorize_params = {{ prompt = \"consent\" }}\n"
            ),
        );
    }

    /// Revokes a token of the public client.
    pub(crate) fn revoke(&self, token: &str) {
        self.revoke_as(&[("token", token), ("client_id", "public")]);
    }

    /// Revokes a token of the confidential client.
    pub(crate) fn revoke_with(&self, token: &str, secret: &str) {
        self.revoke_as(&[("token", token), ("client_id", "confidential"), ("client_secret", secret)]);
    }

    fn revoke_as(&self, form: &[(&str, &str)]) {
        let (status, body) =
            crate::browser::Browser::new().post(&format!("{}/token/revocation", self.issuer), form);
        assert_eq!(status, 200, "{body}");
    }
}

impl Drop for OidcServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
