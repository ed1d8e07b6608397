//! `docs/settings.md`, made from the table of settings.

use super::table::SETTINGS;

const HEAD: &str = "\
# Settings

<!-- Made by parlor settings --markdown from crates/app/src/settings/table.rs. -->

Parlor needs no settings. Those there are stand in `parlor.toml` in the state folder, which is `$PARLOR_HOME` or
`~/.parlor`. The file is read once, at the start of each command. A name that does not exist and a value of the wrong
kind are errors that say the line and what would be right. `parlor settings` prints what holds, and `parlor doctor`
checks the file.

```toml
default_agent = \"demo\"

[agents.demo]
kind = \"script\"
name = \"Demo\"
file = \"demo.toml\"

[agents.main]
kind = \"model\"
name = \"Main Agent\"
model = \"fast\"
fallback = [\"local-model\", \"openai\"]
tools = [\"shell\", \"read_file\", \"write_file\", \"edit_file\", \"list_dir\", \"grep_files\"]
system = \"You review changes. Be brief.\"
max_steps = 300
max_tokens = 20_000_000
max_cost = 25.0
max_seconds = 7200

[models.fast]
provider = \"openai-responses\"
model = \"gpt-5.6-mini\"
context_window = 272000
max_output = 16000
reasoning = \"low\"
price = { input = 0.5, output = 4.0, cached_input = 0.05 }

[models.local-model]
provider = \"openai\"
model = \"qwen3-coder\"
base_url = \"http://127.0.0.1:8080/v1\"
api_key_env = \"MY_SERVER_KEY\"
auth = \"my-server\"

[models.routed]
provider = \"openrouter\"
model = \"deepseek/deepseek-v4\"
routing = [\"deepinfra\", \"together\"]

[default_models]
anthropic = \"claude-sonnet-5\"
openai = \"gpt-5.6\"
gemini = \"gemini-3.5-flash\"
openrouter = \"anthropic/claude-sonnet-5\"

[spending]
session = 5.0
day = 20.0

[auth.example]
client_id = \"parlor-on-my-machine\"
client_secret_env = \"EXAMPLE_CLIENT_SECRET\"
authorize_url = \"https://login.example.org/authorize\"
token_url = \"https://login.example.org/token\"
revoke_url = \"https://login.example.org/revoke\"
device_url = \"https://login.example.org/device\"
device_flow = \"authorization_code\"
device_token_url = \"https://login.example.org/device/token\"
device_verification_url = \"https://login.example.org/enter\"
device_redirect_url = \"https://login.example.org/device/done\"
scopes = [\"openid\", \"email\", \"offline_access\"]
redirect_host = \"localhost\"
redirect_port = 1455
redirect_path = \"/callback\"
authorize_params = { audience = \"models\" }
account_claim = [\"sub\"]
login_timeout = 900

[channels.supex]
listen = \"127.0.0.1:9876\"
repl_listen = \"127.0.0.1:4433\"
token = \"a long secret\"
allowed_roots = \"/home/me/models:/srv/scripts\"
eval_timeout = 60
memory_limit = \"1GiB\"
upstream = \"127.0.0.1:9877\"
upstream_token = \"another secret\"
eval = \"upstream\"

[channels.supr]
enabled = true
listen = \"127.0.0.1:18790\"
token = \"letters-and-digits-22-or-more\"
allow_token_query = false
allow_origins = [\"http://localhost:5173\"]
allow_hosts = [\"chat.example.org\"]
allow_from = [\"supr:supr-user\"]
allow_private_urls = false
ping_interval = 30
read_timeout = 60
write_timeout = 10
max_connections = 100

[retention]
days = 30
max_size = \"2GiB\"

[secrets]
keyring = true

[serve]
allow_local = \"user\"
max_frame_memory = \"256MiB\"

[tools]
environment = [\"SSH_AUTH_SOCK\", \"AWS_*\"]
max_processes = 16384
max_open_files = 65536
max_file_size = \"16GiB\"
```

";

const TAIL: &str = "
`*` stands for a name that you choose. The file has at most 1 MiB (`SETTINGS_BYTES`).

## Environment

| variable | default | |
|---|---|---|
| `PARLOR_HOME` | `~/.parlor` | The state folder. It is made, with mode 0700, if it is missing. |
| `PARLOR_RUBY` | `ruby` in `PATH` | The Ruby interpreter that `parlor doctor` looks for. |
| `PARLOR_LOG` | `warn` on a terminal, else `info` | How much `parlor serve` says on stderr: `error`, `warn`, `info`, `debug`, `trace` or `off`. |
| `PARLOR_DUMPABLE` | not set | `1` lets other processes of the same user look into `parlor`: see [operations.md](operations.md#who-can-look-into-parlor). |
| `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY`, `OPENROUTER_API_KEY` | | The keys of models: see [models.md](models.md). |
| `OPENAI_BASE_URL` | `https://api.openai.com/v1` | Where models of `openai` and `openai-responses` are that have no `base_url`. |
| `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` | | How models and logins are reached. |
| `SUPRCLAW_…` | | Those of the supr door: see [protocols/supr-http.md](protocols/supr-http.md#settings). |
| `SUPEX_…` | | Those of the Supex doors: see [protocols/supex.md](protocols/supex.md#settings). |
| `NO_COLOR` | not set | If it is set to anything, nothing is coloured or dimmed. |
| `TERM` | | `dumb` means a terminal that can only print: no colours, and lines are read without editing. |
| `LC_ALL`, `LC_CTYPE`, `LANG` | | The first that is set says whether marks beyond ASCII can be printed. |

Commands that agents run get few of these variables: those that [tools.md](tools.md#what-processes-are-given) lists, and those that
`tools.environment` names. A name looks like that of a secret if it contains `KEY`, `SECRET`, `TOKEN`, `PASSWORD`, `PASSWD`, `PASSPHRASE`,
`CREDENTIAL`, `COOKIE`, `WEBHOOK` or `DSN`.
";

/// The page.
pub(super) fn render() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| setting | takes | default | |\n|---|---|---|---|\n");
    for setting in SETTINGS {
        let (name, takes) = (setting.name, setting.kind.in_words());
        page.push_str(&format!("| `{name}` | {takes} | {} | {} |\n", setting.default, setting.doc));
    }
    page + TAIL
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "whether to rewrite the page is asked by a variable")]

    use super::*;
    use crate::settings::Config;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");

    #[test]
    fn the_page_is_what_the_table_says() {
        let page = render();
        if std::env::var_os("GOLDEN").is_some_and(|golden| golden == "write") {
            std::fs::write(PAGE, &page).unwrap();
        }
        let written = std::fs::read_to_string(PAGE).unwrap_or_default();
        assert_eq!(
            written, page,
            "docs/settings.md is stale; GOLDEN=write cargo test -p parlor settings rewrites it"
        );
    }

    #[test]
    fn the_sample_on_the_page_is_right_and_sets_what_can_be_set() {
        let sample = HEAD.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        Config::parse(std::path::Path::new("/"), sample).unwrap();
        for setting in SETTINGS {
            let member = setting.name.trim_end_matches(".*").rsplit('.').next().unwrap();
            assert!(sample.contains(&format!("{member} = ")), "{} is missing in the sample", setting.name);
        }
    }

    #[test]
    fn the_defaults_on_the_page_are_the_real_ones() {
        let text: String = SETTINGS
            .iter()
            .filter(|setting| setting.name.starts_with("retention."))
            .map(|setting| format!("{} = {}\n", setting.name, setting.default.replace('`', "")))
            .collect();
        let config = Config::parse(std::path::Path::new("/"), &text).unwrap();
        assert_eq!(config, Config::default());
    }
}
