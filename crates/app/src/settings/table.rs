//! The table of all settings. The checks of `parlor.toml`, `docs/settings.md` and the error messages are derived from it.

pub(crate) use super::kind::{
    Kind, MAX_DAYS, MAX_DOLLARS, MAX_LIMIT, MAX_SECONDS, MAX_SOCKETS, MAX_WINDOW, NEVER, UNLIMITED,
};

/// One setting of `parlor.toml`.
pub(crate) struct Setting {
    /// The path in the file, with dots; `*` stands for a name that the user chooses.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// A description of the default, in Markdown.
    pub(crate) default: &'static str,
    /// A description of the setting, in Markdown.
    pub(crate) doc: &'static str,
}

/// The largest size of `parlor.toml`, in bytes.
pub(crate) const SETTINGS_BYTES: u64 = 1 << 20;

/// All settings, in the order of `docs/settings.md`.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "default_agent",
        kind: Kind::Text,
        default: "the first agent with a model, else `local`",
        doc: "The agent that answers if a client chooses none: one of `[agents]`, or the built-in agent `local`.",
    },
    Setting {
        name: "agents.*.kind",
        kind: Kind::OneOf(&["local", "script", "model"]),
        default: "required",
        doc: "The kind of the agent; `docs/agents.md` describes the kinds.",
    },
    Setting {
        name: "agents.*.name",
        kind: Kind::Text,
        default: "the agent's name in the file",
        doc: "The name that people see.",
    },
    Setting {
        name: "agents.*.file",
        kind: Kind::File,
        default: "required for `script`",
        doc: "The file with the script. Only for `kind = \"script\"`.",
    },
    Setting {
        name: "agents.*.model",
        kind: Kind::Text,
        default: "required for `model`",
        doc: "The model that answers: one of `[models]`, or `anthropic`, `openai`, `gemini` or `openrouter`. This and the following settings of agents are only for `kind = \"model\"`; `docs/models.md` describes them.",
    },
    Setting {
        name: "agents.*.fallback",
        kind: Kind::List,
        default: "`[]`",
        doc: "The models that parlor tries, in this order, if `model` cannot answer.",
    },
    Setting {
        name: "agents.*.tools",
        kind: Kind::List,
        default: "all",
        doc: "The tools that the agent may use; `docs/tools.md` describes them.",
    },
    Setting {
        name: "agents.*.system",
        kind: Kind::Text,
        default: "a short text of parlor's own",
        doc: "The system prompt, which comes before the instructions of the working folder.",
    },
    Setting {
        name: "agents.*.max_steps",
        kind: Kind::Limit,
        default: "`300`",
        doc: "The largest number of model answers in one run.",
    },
    Setting {
        name: "agents.*.max_tokens",
        kind: Kind::Limit,
        default: "`20000000`",
        doc: "The largest number of input and output tokens of one run.",
    },
    Setting {
        name: "agents.*.max_cost",
        kind: Kind::Budget,
        default: "`25.0`",
        doc: "The largest cost of one run in dollars, as far as prices are known.",
    },
    Setting {
        name: "agents.*.max_seconds",
        kind: Kind::Limit,
        default: "`7200`",
        doc: "The longest time that one run may take, in seconds.",
    },
    Setting {
        name: "auth.*.client_id",
        kind: Kind::Text,
        default: "required",
        doc: "The client id that the provider gave you when you registered parlor there. `docs/auth.md` describes logins.",
    },
    Setting {
        name: "auth.*.client_secret_env",
        kind: Kind::Text,
        default: "none",
        doc: "The environment variable that holds the client secret, if the provider gave you one. Its name must look like that of a secret, so that commands of agents do not get it.",
    },
    Setting {
        name: "auth.*.authorize_url",
        kind: Kind::Text,
        default: "none",
        doc: "The authorization page that the browser opens. Required to log in with a browser.",
    },
    Setting {
        name: "auth.*.token_url",
        kind: Kind::Text,
        default: "required",
        doc: "The endpoint that exchanges codes and refresh tokens for access tokens.",
    },
    Setting {
        name: "auth.*.revoke_url",
        kind: Kind::Text,
        default: "none",
        doc: "The endpoint with which `parlor logout` revokes the login.",
    },
    Setting {
        name: "auth.*.device_url",
        kind: Kind::Text,
        default: "none",
        doc: "The endpoint that issues device codes. Required to log in with a code.",
    },
    Setting {
        name: "auth.*.device_flow",
        kind: Kind::OneOf(&["rfc8628", "authorization_code"]),
        default: "`\"rfc8628\"`",
        doc: "What the provider returns after the user has entered the code: tokens, as in RFC 8628, or an authorization code that parlor exchanges for tokens.",
    },
    Setting {
        name: "auth.*.device_token_url",
        kind: Kind::Text,
        default: "`token_url`",
        doc: "The endpoint that parlor polls until the user has entered the code.",
    },
    Setting {
        name: "auth.*.device_verification_url",
        kind: Kind::Text,
        default: "none",
        doc: "The page on which the user enters the code. Only for `device_flow = \"authorization_code\"`, which requires it.",
    },
    Setting {
        name: "auth.*.device_redirect_url",
        kind: Kind::Text,
        default: "none",
        doc: "The redirect address that parlor sends with the exchange of the code. Only for `device_flow = \"authorization_code\"`, which requires it.",
    },
    Setting {
        name: "auth.*.scopes",
        kind: Kind::List,
        default: "`[]`",
        doc: "The scopes that parlor requests.",
    },
    Setting {
        name: "auth.*.redirect_host",
        kind: Kind::OneOf(&["127.0.0.1", "localhost"]),
        default: "`\"127.0.0.1\"`",
        doc: "The host in the address of the callback, as registered with the provider.",
    },
    Setting {
        name: "auth.*.redirect_port",
        kind: Kind::UpTo(65_535),
        default: "any free port",
        doc: "The port of the callback. If it is in use, parlor uses a free one.",
    },
    Setting {
        name: "auth.*.redirect_path",
        kind: Kind::Text,
        default: "`\"/callback\"`",
        doc: "The path of the callback.",
    },
    Setting {
        name: "auth.*.authorize_params.*",
        kind: Kind::Text,
        default: "none",
        doc: "Further query parameters of `authorize_url`.",
    },
    Setting {
        name: "auth.*.account_claim",
        kind: Kind::List,
        default: "`[\"sub\"]`",
        doc: "The path of the account id in the claims of the ID token, from the outermost name to the innermost.",
    },
    Setting {
        name: "auth.*.login_timeout",
        kind: Kind::Seconds,
        default: "`900`",
        doc: "The longest time that a login may take, in seconds.",
    },
    Setting {
        name: "channels.supex.listen",
        kind: Kind::Text,
        default: "`\"127.0.0.1:9876\"`",
        doc: "The host and port of the Supex bridge of `parlor serve`. `--supex`, `SUPEX_HOST` and `SUPEX_PORT` override it.",
    },
    Setting {
        name: "channels.supex.repl_listen",
        kind: Kind::Text,
        default: "`\"127.0.0.1:4433\"`",
        doc: "The host and port of the Supex REPL. `--supex-repl`, `SUPEX_REPL_HOST` and `SUPEX_REPL_PORT` override it.",
    },
    Setting {
        name: "channels.supex.token",
        kind: Kind::Text,
        default: "none",
        doc: "The secret that Supex clients must send. With it they can use parlor's own tools. `SUPEX_AUTH_TOKEN` overrides it.",
    },
    Setting {
        name: "channels.supex.allowed_roots",
        kind: Kind::Text,
        default: "none",
        doc: "The folders, separated by colons, whose files Supex clients may name; `*` allows all. `SUPEX_ALLOWED_ROOTS` overrides it.",
    },
    Setting {
        name: "channels.supex.eval_timeout",
        kind: Kind::Seconds,
        default: "`60`",
        doc: "The longest time that one evaluation of Ruby may take, in seconds.",
    },
    Setting {
        name: "channels.supex.memory_limit",
        kind: Kind::Size,
        default: "`\"1GiB\"`",
        doc: "The memory limit of the Ruby process.",
    },
    Setting {
        name: "channels.supex.upstream",
        kind: Kind::Text,
        default: "none",
        doc: "The host and port of a SketchUp runtime to which parlor forwards the tools that need SketchUp.",
    },
    Setting {
        name: "channels.supex.upstream_token",
        kind: Kind::Text,
        default: "none",
        doc: "The secret that parlor sends to `upstream`.",
    },
    Setting {
        name: "channels.supex.eval",
        kind: Kind::OneOf(&["upstream", "here"]),
        default: "`\"upstream\"`",
        doc: "Where Ruby is evaluated if `upstream` is set: in that runtime, or in parlor's own Ruby (`here`).",
    },
    Setting {
        name: "channels.supr.enabled",
        kind: Kind::Flag,
        default: "`true`",
        doc: "Whether `parlor serve` accepts WebSocket clients. `SUPRCLAW_CHANNELS_SUPR_ENABLED` overrides it.",
    },
    Setting {
        name: "channels.supr.listen",
        kind: Kind::Text,
        default: "`\"127.0.0.1:18790\"`",
        doc: "The host and port of the HTTP server of `parlor serve`. `--listen`, `SUPRCLAW_GATEWAY_HOST` and `SUPRCLAW_GATEWAY_PORT` override it.",
    },
    Setting {
        name: "channels.supr.token",
        kind: Kind::Text,
        default: "generated at the first start",
        doc: "The secret that clients must send; `parlor token` prints the valid one. `SUPRCLAW_CHANNELS_SUPR_TOKEN` overrides it.",
    },
    Setting {
        name: "channels.supr.allow_token_query",
        kind: Kind::Flag,
        default: "`false`",
        doc: "Whether clients may send the token in the query of the URL, where logs and browser histories record it.",
    },
    Setting {
        name: "channels.supr.allow_origins",
        kind: Kind::List,
        default: "`[]`: all",
        doc: "The origins of other pages, such as `\"http://localhost:5173\"`, that may open a WebSocket and use the API like parlor's own page; see `docs/proxy.md`. `\"*\"` lets every page open a WebSocket, with the token, and opens no API. If the list is not empty, a WebSocket of another page, or of a client without the header `Origin`, is refused.",
    },
    Setting {
        name: "channels.supr.allow_hosts",
        kind: Kind::List,
        default: "`[]`",
        doc: "The host names of this server, in addition to its addresses and `localhost`. Requests with another `Host` header are refused.",
    },
    Setting {
        name: "channels.supr.trusted_proxies",
        kind: Kind::List,
        default: "`[]`",
        doc: "The addresses and networks of reverse proxies, such as `\"127.0.0.1\"` or `\"10.0.0.0/8\"`, whose `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` parlor believes; see `docs/proxy.md`. Their clients need the token, or a cookie that they get for it.",
    },
    Setting {
        name: "channels.supr.allow_from",
        kind: Kind::List,
        default: "`[]`: all",
        doc: "The senders whose messages are accepted; over a WebSocket the sender is always `supr:supr-user`. `SUPRCLAW_CHANNELS_SUPR_ALLOW_FROM`, a comma-separated list, overrides it.",
    },
    Setting {
        name: "channels.supr.allow_private_urls",
        kind: Kind::Flag,
        default: "`false`",
        doc: "Whether parlor may fetch files from addresses of this machine and of private networks.",
    },
    Setting {
        name: "channels.supr.ping_interval",
        kind: Kind::UpTo(MAX_SECONDS),
        default: "`30`",
        doc: "The interval between pings to a client, in seconds.",
    },
    Setting {
        name: "channels.supr.read_timeout",
        kind: Kind::UpTo(MAX_SECONDS),
        default: "`60`",
        doc: "A client that sends nothing for this many seconds is disconnected. Must be longer than `ping_interval`, or idle clients are disconnected too.",
    },
    Setting {
        name: "channels.supr.write_timeout",
        kind: Kind::UpTo(MAX_SECONDS),
        default: "`10`",
        doc: "A client that reads nothing for this many seconds while something is sent to it is disconnected. One that reads slowly is not.",
    },
    Setting {
        name: "channels.supr.max_connections",
        kind: Kind::UpTo(MAX_SOCKETS),
        default: "`100`",
        doc: "The largest number of WebSocket clients and event streams at a time.",
    },
    Setting {
        name: "default_models.anthropic",
        kind: Kind::Text,
        default: "`\"claude-sonnet-5\"`",
        doc: "The model that `anthropic` stands for. Agents can use `anthropic` without an entry in `[models]`.",
    },
    Setting {
        name: "default_models.openai",
        kind: Kind::Text,
        default: "`\"gpt-5.6\"`",
        doc: "The model that `openai` stands for.",
    },
    Setting {
        name: "default_models.gemini",
        kind: Kind::Text,
        default: "`\"gemini-3.5-flash\"`",
        doc: "The model that `gemini` stands for.",
    },
    Setting {
        name: "default_models.openrouter",
        kind: Kind::Text,
        default: "`\"anthropic/claude-sonnet-5\"`",
        doc: "The model that `openrouter` stands for.",
    },
    Setting {
        name: "log.url",
        kind: Kind::Text,
        default: "`\"sqlite:\"`",
        doc: "Where the events of sessions are kept: `\"sqlite:\"` is the database in the state folder, and an address such as `\"postgres://user@host/database\"` a PostgreSQL database that several nodes may share; `docs/postgres.md` describes it.",
    },
    Setting {
        name: "log.password_file",
        kind: Kind::File,
        default: "the variable `PGPASSWORD`, else the password in `url`",
        doc: "A file with the password of that database.",
    },
    Setting {
        name: "models.*.provider",
        kind: Kind::OneOf(&["openai", "openai-responses", "anthropic", "gemini", "openrouter", "ollama"]),
        default: "required",
        doc: "The API of the model. Most other servers accept that of `openai`; set `base_url` for them.",
    },
    Setting {
        name: "models.*.model",
        kind: Kind::Text,
        default: "required",
        doc: "The provider's name for the model.",
    },
    Setting {
        name: "models.*.base_url",
        kind: Kind::Text,
        default: "the provider's own",
        doc: "The address of the server. For `openai` and `openai-responses`, `OPENAI_BASE_URL` is the default.",
    },
    Setting {
        name: "models.*.api_key_env",
        kind: Kind::Text,
        default: "the provider's usual one",
        doc: "The environment variable that holds the key. Its name must look like that of a secret, so that commands of agents do not get it.",
    },
    Setting {
        name: "models.*.auth",
        kind: Kind::Text,
        default: "the provider's name, unless there is a `base_url`",
        doc: "The name under which `parlor login` stored its key or login. Parlor sends a stored key to a server at a `base_url` only if this setting names the key.",
    },
    Setting {
        name: "models.*.context_window",
        kind: Kind::UpTo(MAX_WINDOW),
        default: "`128000`",
        doc: "The context window in tokens; at least 4000.",
    },
    Setting {
        name: "models.*.max_output",
        kind: Kind::UpTo(MAX_WINDOW),
        default: "the provider's own",
        doc: "The largest number of tokens in one answer.",
    },
    Setting {
        name: "models.*.reasoning",
        kind: Kind::OneOf(&["off", "low", "medium", "high", "xhigh", "adaptive"]),
        default: "the provider's own",
        doc: "How much reasoning the model does if a client does not choose a level.",
    },
    Setting {
        name: "models.*.price.input",
        kind: Kind::Dollars,
        default: "none",
        doc: "The price of a million input tokens in dollars. Without prices the cost is unknown, and cost limits have no effect.",
    },
    Setting {
        name: "models.*.price.output",
        kind: Kind::Dollars,
        default: "none",
        doc: "The price of a million output tokens in dollars.",
    },
    Setting {
        name: "models.*.price.cached_input",
        kind: Kind::Dollars,
        default: "`input`",
        doc: "The price of a million input tokens that the provider has cached, in dollars.",
    },
    Setting {
        name: "models.*.routing",
        kind: Kind::List,
        default: "`[]`",
        doc: "The providers to which OpenRouter may route requests, the preferred one first. Only for `provider = \"openrouter\"`.",
    },
    Setting {
        name: "retention.days",
        kind: Kind::Days,
        default: "`90`",
        doc: "`parlor gc` deletes sessions that were not used for this many days.",
    },
    Setting {
        name: "retention.max_size",
        kind: Kind::Size,
        default: "`\"10GiB\"`",
        doc: "`parlor gc` deletes the least recently used sessions until the rest is no larger than this.",
    },
    Setting {
        name: "secrets.keyring",
        kind: Kind::Flag,
        default: "`true`",
        doc: "Whether parlor stores keys and logins in the system's keyring if there is one ([auth.md](auth.md)), instead of in files.",
    },
    Setting {
        name: "serve.allow_local",
        kind: Kind::OneOf(&["user", "token"]),
        default: "`\"user\"`",
        doc: "Who on this machine may use the doors of `parlor serve` without a token: root and the user that runs it (`user`), or nobody (`token`). A door with a token of its own, `channels.supex.token`, always requires it.",
    },
    Setting {
        name: "serve.max_frame_memory",
        kind: Kind::Size,
        default: "`\"256MiB\"`",
        doc: "The memory that `parlor serve` uses for large messages of all connections together, in addition to 64 KiB per connection. When it is used up, large messages wait. Values below 1 MiB count as 1 MiB. It also limits the size of one message.",
    },
    Setting {
        name: "sessions.join",
        kind: Kind::Flag,
        default: "`true`",
        doc: "Whether a client may join a session that another process has open ([sharing.md](sharing.md)). If `false`, this process refuses such a session and does not serve its own to others.",
    },
    Setting {
        name: "sessions.when_owner_leaves",
        kind: Kind::OneOf(&["stop", "hand-over"]),
        default: "`\"stop\"`",
        doc: "What the process of a front end or bridge does when its parent closes stdin while others use its sessions ([sharing.md](sharing.md)). `\"stop\"`: it stops their runs, as it does without others. `\"hand-over\"`: it stays until these runs have ended; then the others take the sessions over.",
    },
    Setting {
        name: "spending.session",
        kind: Kind::Budget,
        default: "`\"unlimited\"`",
        doc: "The largest cost of one session in dollars, as far as prices are known. A run that reaches the limit ends.",
    },
    Setting {
        name: "spending.day",
        kind: Kind::Budget,
        default: "`\"unlimited\"`",
        doc: "The largest cost of all sessions together in dollars, from midnight to midnight UTC.",
    },
    Setting {
        name: "tools.environment",
        kind: Kind::List,
        default: "`[]`",
        doc: "Environment variables that commands of agents get in addition to those that `docs/tools.md` lists, such as `\"SSH_AUTH_SOCK\"`. A prefix such as `\"AWS_*\"` matches all names that start with it, except those that look like secrets.",
    },
    Setting {
        name: "tools.max_processes",
        kind: Kind::Limit,
        default: "`16384`",
        doc: "A command cannot start another process or thread while the user has this many. This and the next two limits apply to all processes that parlor starts for agents and clients; they cannot exceed the limits of parlor itself.",
    },
    Setting {
        name: "tools.max_open_files",
        kind: Kind::Limit,
        default: "`65536`",
        doc: "The largest number of open files of such a process.",
    },
    Setting {
        name: "tools.max_file_size",
        kind: Kind::Size,
        default: "`\"16GiB\"`",
        doc: "The largest file that such a process may write.",
    },
];

/// Finds the setting with this path.
pub(crate) fn find(path: &[&str]) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| {
        let parts: Vec<&str> = setting.name.split('.').collect();
        parts.len() == path.len() && parts.iter().zip(path).all(|(part, name)| *part == "*" || part == name)
    })
}

/// The names of the settings and tables in the table with this path; `*` stands for a name that the user chooses. `None` if
/// there is no such table.
pub(crate) fn members(table: &[&str]) -> Option<Vec<&'static str>> {
    let mut members: Vec<&'static str> = SETTINGS
        .iter()
        .filter_map(|setting| {
            let mut parts = setting.name.split('.');
            let is_inside =
                table.iter().all(|name| parts.next().is_some_and(|part| part == "*" || part == *name));
            is_inside.then(|| parts.next()).flatten()
        })
        .collect();
    members.dedup();
    (!members.is_empty()).then_some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_found_by_its_path() {
        assert_eq!(find(&["agents", "x", "kind"]).map(|setting| setting.name), Some("agents.*.kind"));
        assert!(find(&["agents", "x"]).is_none() && find(&["kind"]).is_none());
    }

    #[test]
    fn the_members_of_a_table_are_known() {
        let tables = [
            "agents",
            "auth",
            "channels",
            "default_models",
            "log",
            "models",
            "retention",
            "secrets",
            "serve",
            "sessions",
            "spending",
            "tools",
        ];
        assert_eq!(members(&[]), Some([&["default_agent"], &tables[..]].concat()));
        assert_eq!(members(&["agents"]), Some(vec!["*"]));
        assert_eq!(members(&["agents", "x"]).unwrap()[..4], ["kind", "name", "file", "model"]);
        assert_eq!(members(&["nothing"]), None);
        assert_eq!(members(&["default_agent"]), None);
    }
}
