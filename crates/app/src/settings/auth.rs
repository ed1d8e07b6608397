//! `[auth.NAME]`: the providers that one can log in to.

use std::collections::BTreeMap;
use std::time::Duration;

use parlor_auth::{LoginProvider, ProviderDraft};

use super::SettingsError;
use super::read::Value;
use crate::environment::looks_like_a_secret;

/// The value of `device_flow` for providers that do not follow RFC 8628.
const AUTHORIZATION_CODE_FLOW: &str = "authorization_code";

/// The table inside `[auth.NAME]` with further query parameters.
const PARAMS: &str = "authorize_params";

/// The settings of one login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoginConfig {
    /// The provider, without its client secret.
    pub(crate) provider: LoginProvider,
    /// The environment variable that holds the client secret.
    pub(crate) client_secret_env: Option<String>,
    /// The settings as the file has them, for `parlor settings`.
    draft: ProviderDraft,
}

/// The settings of logins while the file is being read.
#[derive(Default)]
pub(super) struct LoginDrafts(BTreeMap<String, LoginDraft>);

struct LoginDraft {
    line: usize,
    client_secret_env: Option<String>,
    draft: ProviderDraft,
}

impl LoginDrafts {
    /// Sets a setting of `[auth.NAME]`, or of its `authorize_params`.
    pub(super) fn set(&mut self, name: &str, member: &[&str], value: Value, line: usize) {
        let login = self.0.entry(name.to_owned());
        let login = login.or_insert_with(|| LoginDraft {
            line,
            client_secret_env: None,
            draft: ProviderDraft::default(),
        });
        let draft = &mut login.draft;
        match (member, value) {
            (["client_id"], Value::Text(text)) => draft.client_id = text,
            (["client_secret_env"], Value::Text(text)) => login.client_secret_env = Some(text),
            (["authorize_url"], Value::Text(text)) => draft.authorize_url = text,
            (["token_url"], Value::Text(text)) => draft.token_url = text,
            (["revoke_url"], Value::Text(text)) => draft.revoke_url = text,
            (["device_url"], Value::Text(text)) => draft.device_url = text,
            (["device_flow"], Value::Text(flow)) => {
                draft.device_yields_code = flow == AUTHORIZATION_CODE_FLOW
            }
            (["device_token_url"], Value::Text(text)) => draft.device_token_url = text,
            (["device_verification_url"], Value::Text(text)) => draft.device_verification_url = text,
            (["device_redirect_url"], Value::Text(text)) => draft.device_redirect_url = text,
            (["scopes"], Value::List(scopes)) => draft.scopes = scopes,
            (["redirect_host"], Value::Text(text)) => draft.redirect_host = text,
            (["redirect_port"], Value::NumberOrDefault(port)) => {
                draft.redirect_port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
            }
            (["redirect_path"], Value::Text(text)) => draft.redirect_path = text,
            ([PARAMS, name], Value::Text(text)) => draft.authorize_params.push(((*name).to_owned(), text)),
            (["account_claim"], Value::List(claim)) => draft.account_claim = claim,
            (["login_timeout"], Value::Seconds(seconds)) => {
                draft.login_wait = Some(Duration::from_secs(seconds));
            }
            (member, _) => unreachable!("no code handles the setting {member:?}"),
        }
    }

    /// Checks each login as a whole.
    pub(super) fn finish(self) -> Result<BTreeMap<String, LoginConfig>, SettingsError> {
        let finished = self.0.into_iter().map(|(name, login)| Ok((name.clone(), login.finish(&name)?)));
        finished.collect()
    }
}

impl LoginDraft {
    fn finish(self, name: &str) -> Result<LoginConfig, SettingsError> {
        let error = |message: String| SettingsError::at(self.line, message);
        let client_secret_env = self.client_secret_env.filter(|variable| !variable.is_empty());
        if let Some(variable) = client_secret_env.as_ref().filter(|variable| !looks_like_a_secret(variable)) {
            return Err(error(format!(
                "auth.{name}.client_secret_env is {variable:?}, which commands of agents would see; \
                 give the variable a name with SECRET in it"
            )));
        }
        let provider = self.draft.clone().check(name).map_err(|invalid| match invalid.member {
            Some(member) => error(format!("auth.{name}.{member} {}", invalid.problem)),
            None => error(format!("auth.{name} {}", invalid.problem)),
        })?;
        Ok(LoginConfig { provider, client_secret_env, draft: self.draft })
    }
}

impl LoginConfig {
    /// The values of a setting as TOML, each with its name below `auth.NAME`. Empty if the setting is not set.
    pub(super) fn value(&self, member: &str) -> Vec<(String, String)> {
        let draft = &self.draft;
        let one = |value: String| vec![(member.to_owned(), value)];
        let text = |text: &str| if text.is_empty() { Vec::new() } else { one(format!("{text:?}")) };
        let list = |list: &[String]| if list.is_empty() { Vec::new() } else { one(format!("{list:?}")) };
        match member {
            "client_id" => text(&draft.client_id),
            "client_secret_env" => text(self.client_secret_env.as_deref().unwrap_or_default()),
            "authorize_url" => text(&draft.authorize_url),
            "token_url" => text(&draft.token_url),
            "revoke_url" => text(&draft.revoke_url),
            "device_url" => text(&draft.device_url),
            "device_flow" if draft.device_yields_code => text(AUTHORIZATION_CODE_FLOW),
            "device_token_url" => text(&draft.device_token_url),
            "device_verification_url" => text(&draft.device_verification_url),
            "device_redirect_url" => text(&draft.device_redirect_url),
            "scopes" => list(&draft.scopes),
            "redirect_host" => text(&draft.redirect_host),
            "redirect_port" if draft.redirect_port > 0 => one(draft.redirect_port.to_string()),
            "redirect_path" => text(&draft.redirect_path),
            "account_claim" => list(&draft.account_claim),
            "login_timeout" => draft.login_wait.map_or_else(Vec::new, |wait| one(wait.as_secs().to_string())),
            "authorize_params.*" => {
                let with_name =
                    |(name, value): &(String, String)| (format!("{PARAMS}.{name:?}"), format!("{value:?}"));
                draft.authorize_params.iter().map(with_name).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    const FULL: &str = r#"
[auth.x]
client_id = "us"
client_secret_env = "X_CLIENT_SECRET"
authorize_url = "https://example.org/authorize"
token_url = "https://example.org/token"
revoke_url = "https://example.org/revoke"
device_url = "https://example.org/usercode"
device_flow = "authorization_code"
device_token_url = "https://example.org/poll"
device_verification_url = "https://example.org/enter"
device_redirect_url = "https://example.org/done"
scopes = ["a", "b"]
redirect_host = "localhost"
redirect_port = 1455
redirect_path = "/auth/callback"
account_claim = ["https://example.org/auth", "account"]
login_timeout = 60
authorize_params = { "a.b" = "c d" }
"#;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(std::path::Path::new("/"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_is_read_and_printed() {
        let config = parse(FULL).unwrap();
        let login = &config.auth["x"];
        assert_eq!(login.client_secret_env.as_deref(), Some("X_CLIENT_SECRET"));
        assert!(login.provider.has_browser() && login.provider.has_device());
        let members = super::super::table::settings().filter_map(|it| it.name.strip_prefix("auth.*."));
        let shown: String = members
            .flat_map(|member| {
                let values = login.value(member);
                assert_eq!(values.len(), 1, "{member}");
                values
            })
            .map(|(member, value)| format!("auth.x.{member} = {value}\n"))
            .collect();
        assert_eq!(parse(&shown).unwrap(), config, "{shown}");
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(
            error("[auth.x]\nclient_id = \"us\"\ntoken_url = \"http://example.org\""),
            "line 2: auth.x.token_url must begin with https://; http:// is for this machine only"
        );
        assert!(error("[auth.x]\nclient_id = \"us\"").contains("auth.x.token_url is needed"));
        assert!(error("[auth.\"a b\"]\nclient_id = \"us\"").contains("auth.a b has an invalid name"));
        let variable = FULL.replace("X_CLIENT_SECRET", "X_CLIENT");
        assert!(error(&variable).contains("give the variable a name with SECRET in it"));
        assert!(error("auth.x.redirect_port = 65536").contains("up to 65535"));
        assert!(error("auth.x.device_flow = \"other\"").contains("\"rfc8628\" or \"authorization_code\""));
    }
}
