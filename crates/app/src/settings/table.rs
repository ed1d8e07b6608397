//! Every setting there is: what is read, what is documented and what a mistake is compared with.

pub(crate) use super::kind::{
    Kind, MAX_DAYS, MAX_DOLLARS, MAX_LIMIT, MAX_SECONDS, MAX_SOCKETS, MAX_WINDOW, NEVER, UNLIMITED,
};

/// One setting of `parlor.toml`.
pub(crate) struct Setting {
    /// Its name from the top of the file; `*` stands for a name that the user chooses.
    pub(crate) name: &'static str,
    /// What it takes.
    pub(crate) kind: Kind,
    /// What holds without it, in words.
    pub(crate) default: &'static str,
    /// What it is for.
    pub(crate) doc: &'static str,
}

/// The largest `parlor.toml` that is read.
pub(crate) const SETTINGS_BYTES: u64 = 1 << 20;

/// All of them, in the order of the page.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "default_agent",
        kind: Kind::Text,
        default: "the first agent with a model, else `local`",
        doc: "The agent that answers where nobody is asked for: one of `[agents]`, or `local`, which is always there.",
    },
    Setting {
        name: "agents.*.kind",
        kind: Kind::Word(&["local", "script", "model"]),
        default: "required",
        doc: "What kind of agent it is; `docs/agents.md` describes them.",
    },
    Setting {
        name: "agents.*.name",
        kind: Kind::Text,
        default: "its name in the file",
        doc: "What people call it.",
    },
    Setting {
        name: "agents.*.file",
        kind: Kind::File,
        default: "required for `script`",
        doc: "The script. Only for `kind = \"script\"`.",
    },
    Setting {
        name: "agents.*.model",
        kind: Kind::Text,
        default: "required for `model`",
        doc: "The model that answers: one of `[models]`, or `anthropic`, `openai`, `gemini` or `openrouter`. This and what follows is only for `kind = \"model\"`; `docs/models.md` describes it.",
    },
    Setting {
        name: "agents.*.fallback",
        kind: Kind::List,
        default: "`[]`",
        doc: "The models that take its place when it cannot answer, one after another.",
    },
    Setting {
        name: "agents.*.tools",
        kind: Kind::List,
        default: "all",
        doc: "The tools that it may use; `docs/tools.md` describes them.",
    },
    Setting {
        name: "agents.*.system",
        kind: Kind::Text,
        default: "a few sentences of parlor's own",
        doc: "What the model is told first, before the instructions of the working folder.",
    },
    Setting {
        name: "agents.*.max_steps",
        kind: Kind::Limit,
        default: "`300`",
        doc: "How many answers of a model one run may have.",
    },
    Setting {
        name: "agents.*.max_tokens",
        kind: Kind::Limit,
        default: "`20000000`",
        doc: "How many tokens one run may read and write.",
    },
    Setting {
        name: "agents.*.max_cost",
        kind: Kind::Budget,
        default: "`25.0`",
        doc: "How many dollars one run may cost, where prices are known.",
    },
    Setting {
        name: "agents.*.max_seconds",
        kind: Kind::Limit,
        default: "`7200`",
        doc: "How long one run may take.",
    },
    Setting {
        name: "auth.*.client_id",
        kind: Kind::Text,
        default: "required",
        doc: "By what the provider knows parlor; it gives one to those who register. `docs/auth.md` describes logins.",
    },
    Setting {
        name: "auth.*.client_secret_env",
        kind: Kind::Text,
        default: "none",
        doc: "The variable that holds the client secret, if the provider gave one. Its name must look like that of a secret, so that commands of agents do not get it.",
    },
    Setting {
        name: "auth.*.authorize_url",
        kind: Kind::Text,
        default: "none",
        doc: "Where a browser is sent to. Needed to log in with a browser.",
    },
    Setting {
        name: "auth.*.token_url",
        kind: Kind::Text,
        default: "required",
        doc: "Where codes and refresh tokens are exchanged for tokens.",
    },
    Setting {
        name: "auth.*.revoke_url",
        kind: Kind::Text,
        default: "none",
        doc: "Where `parlor logout` tells the provider of it.",
    },
    Setting {
        name: "auth.*.device_url",
        kind: Kind::Text,
        default: "none",
        doc: "Where a device code is asked for. Needed to log in with a code.",
    },
    Setting {
        name: "auth.*.device_flow",
        kind: Kind::Word(&["rfc8628", "authorization_code"]),
        default: "`\"rfc8628\"`",
        doc: "What a code that was entered yields: the tokens, as RFC 8628 has it, or an authorization code that is exchanged for them.",
    },
    Setting {
        name: "auth.*.device_token_url",
        kind: Kind::Text,
        default: "`token_url`",
        doc: "Where it is asked whether the code was entered.",
    },
    Setting {
        name: "auth.*.device_verification_url",
        kind: Kind::Text,
        default: "none",
        doc: "Where people enter the code. Only for `device_flow = \"authorization_code\"`, and needed there.",
    },
    Setting {
        name: "auth.*.device_redirect_url",
        kind: Kind::Text,
        default: "none",
        doc: "The redirect address that the exchange names. Only for `device_flow = \"authorization_code\"`, and needed there.",
    },
    Setting { name: "auth.*.scopes", kind: Kind::List, default: "`[]`", doc: "What is asked for." },
    Setting {
        name: "auth.*.redirect_host",
        kind: Kind::Word(&["127.0.0.1", "localhost"]),
        default: "`\"127.0.0.1\"`",
        doc: "How the provider knows this machine in the address of the callback.",
    },
    Setting {
        name: "auth.*.redirect_port",
        kind: Kind::UpTo(65_535),
        default: "any free one",
        doc: "The port of the callback. If it is taken, a free one is used.",
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
        doc: "Added to the address that a browser is sent to.",
    },
    Setting {
        name: "auth.*.account_claim",
        kind: Kind::List,
        default: "`[\"sub\"]`",
        doc: "Where the ID token names the account, from the outside to the inside.",
    },
    Setting {
        name: "auth.*.login_timeout",
        kind: Kind::Seconds,
        default: "`900`",
        doc: "How many seconds a login may take.",
    },
    Setting {
        name: "channels.supex.listen",
        kind: Kind::Text,
        default: "`\"127.0.0.1:9876\"`",
        doc: "Where `parlor serve` opens the Supex bridge: a host and a port. `--supex`, `SUPEX_HOST` and `SUPEX_PORT` go before.",
    },
    Setting {
        name: "channels.supex.repl_listen",
        kind: Kind::Text,
        default: "`\"127.0.0.1:4433\"`",
        doc: "Where it opens the Supex REPL. `--supex-repl`, `SUPEX_REPL_HOST` and `SUPEX_REPL_PORT` go before.",
    },
    Setting {
        name: "channels.supex.token",
        kind: Kind::Text,
        default: "none",
        doc: "The secret that Supex clients must send. With it they can use parlor's own tools. `SUPEX_AUTH_TOKEN` goes before.",
    },
    Setting {
        name: "channels.supex.allowed_roots",
        kind: Kind::Text,
        default: "none",
        doc: "Folders, separated by colons, whose files Supex clients may name; `*` is everything. `SUPEX_ALLOWED_ROOTS` goes before.",
    },
    Setting {
        name: "channels.supex.eval_timeout",
        kind: Kind::Seconds,
        default: "`60`",
        doc: "How many seconds one evaluation of Ruby may take.",
    },
    Setting {
        name: "channels.supex.memory_limit",
        kind: Kind::Size,
        default: "`\"1GiB\"`",
        doc: "How much memory Ruby may use.",
    },
    Setting {
        name: "channels.supex.upstream",
        kind: Kind::Text,
        default: "none",
        doc: "A SketchUp runtime, as host and port, that tools which need SketchUp are forwarded to.",
    },
    Setting {
        name: "channels.supex.upstream_token",
        kind: Kind::Text,
        default: "none",
        doc: "The secret that this runtime asks for.",
    },
    Setting {
        name: "channels.supex.eval",
        kind: Kind::Word(&["upstream", "here"]),
        default: "`\"upstream\"`",
        doc: "Where Ruby is evaluated if there is an `upstream`: in that runtime, or in parlor's own Ruby.",
    },
    Setting {
        name: "channels.supr.enabled",
        kind: Kind::Flag,
        default: "`true`",
        doc: "Whether `parlor serve` lets WebSocket clients in. `SUPRCLAW_CHANNELS_SUPR_ENABLED` goes before.",
    },
    Setting {
        name: "channels.supr.listen",
        kind: Kind::Text,
        default: "`\"127.0.0.1:18790\"`",
        doc: "Where it listens for HTTP: a host and a port. `--listen`, `SUPRCLAW_GATEWAY_HOST` and `SUPRCLAW_GATEWAY_PORT` go before.",
    },
    Setting {
        name: "channels.supr.token",
        kind: Kind::Text,
        default: "made at the first start",
        doc: "The secret that clients must send; `parlor token` prints the one that holds. `SUPRCLAW_CHANNELS_SUPR_TOKEN` goes before.",
    },
    Setting {
        name: "channels.supr.allow_token_query",
        kind: Kind::Flag,
        default: "`false`",
        doc: "Whether the token may stand in the address, where logs and histories keep it.",
    },
    Setting {
        name: "channels.supr.allow_origins",
        kind: Kind::List,
        default: "`[]`: all",
        doc: "The pages that may open a socket, each as in the `Origin` header, such as `\"http://localhost:5173\"`, or `\"*\"`. Clients without that header are not let in then.",
    },
    Setting {
        name: "channels.supr.allow_hosts",
        kind: Kind::List,
        default: "`[]`",
        doc: "Names under which this server is reached, beside its addresses and `localhost`. Whoever calls it by another name is refused.",
    },
    Setting {
        name: "channels.supr.allow_from",
        kind: Kind::List,
        default: "`[]`: all",
        doc: "Whose messages are taken; over a socket that is always `supr:supr-user`. `SUPRCLAW_CHANNELS_SUPR_ALLOW_FROM`, a list with commas, goes before.",
    },
    Setting {
        name: "channels.supr.allow_private_urls",
        kind: Kind::Flag,
        default: "`false`",
        doc: "Whether files may be fetched from addresses of this machine and of private networks.",
    },
    Setting {
        name: "channels.supr.ping_interval",
        kind: Kind::UpTo(MAX_SECONDS),
        default: "`30`",
        doc: "After how many seconds a client is pinged, again and again.",
    },
    Setting {
        name: "channels.supr.read_timeout",
        kind: Kind::UpTo(MAX_SECONDS),
        default: "`60`",
        doc: "After how many seconds of silence a client is given up. Longer than `ping_interval`, or the idle are lost.",
    },
    Setting {
        name: "channels.supr.write_timeout",
        kind: Kind::UpTo(MAX_SECONDS),
        default: "`10`",
        doc: "After how many seconds a client that does not read is given up.",
    },
    Setting {
        name: "channels.supr.max_connections",
        kind: Kind::UpTo(MAX_SOCKETS),
        default: "`100`",
        doc: "How many WebSocket clients there may be at a time.",
    },
    Setting {
        name: "default_models.anthropic",
        kind: Kind::Text,
        default: "`\"claude-sonnet-5\"`",
        doc: "The model that `anthropic` means. A key in the environment is all that it needs.",
    },
    Setting {
        name: "default_models.openai",
        kind: Kind::Text,
        default: "`\"gpt-5.6\"`",
        doc: "The model that `openai` means.",
    },
    Setting {
        name: "default_models.gemini",
        kind: Kind::Text,
        default: "`\"gemini-3.5-flash\"`",
        doc: "The model that `gemini` means.",
    },
    Setting {
        name: "default_models.openrouter",
        kind: Kind::Text,
        default: "`\"anthropic/claude-sonnet-5\"`",
        doc: "The model that `openrouter` means.",
    },
    Setting {
        name: "models.*.provider",
        kind: Kind::Word(&["openai", "openai-responses", "anthropic", "gemini", "openrouter", "ollama"]),
        default: "required",
        doc: "How the model is spoken to. `openai` is also the way to most other servers, with a `base_url`.",
    },
    Setting {
        name: "models.*.model",
        kind: Kind::Text,
        default: "required",
        doc: "What the provider calls it.",
    },
    Setting {
        name: "models.*.base_url",
        kind: Kind::Text,
        default: "the provider's own",
        doc: "Where it is. For `openai` and `openai-responses`, `OPENAI_BASE_URL` is the default.",
    },
    Setting {
        name: "models.*.api_key_env",
        kind: Kind::Text,
        default: "the provider's usual one",
        doc: "The variable that holds the key. Its name must look like that of a secret, so that commands of agents do not get it.",
    },
    Setting {
        name: "models.*.auth",
        kind: Kind::Text,
        default: "the provider's name, unless there is a `base_url`",
        doc: "Under which name of `parlor login` its key or login is kept. To a server at a `base_url` they go only if this names them.",
    },
    Setting {
        name: "models.*.context_window",
        kind: Kind::UpTo(MAX_WINDOW),
        default: "`128000`",
        doc: "How many tokens it can read; at least 4000.",
    },
    Setting {
        name: "models.*.max_output",
        kind: Kind::UpTo(MAX_WINDOW),
        default: "the provider's own",
        doc: "How many tokens one answer may have.",
    },
    Setting {
        name: "models.*.reasoning",
        kind: Kind::Word(&["off", "low", "medium", "high", "xhigh", "adaptive"]),
        default: "the provider's own",
        doc: "How hard it is to think where nobody chooses.",
    },
    Setting {
        name: "models.*.price.input",
        kind: Kind::Dollars,
        default: "none",
        doc: "What a million tokens cost that it reads, in dollars. Without prices no cost is known, and limits of cost do not hold.",
    },
    Setting {
        name: "models.*.price.output",
        kind: Kind::Dollars,
        default: "none",
        doc: "What a million tokens cost that it writes.",
    },
    Setting {
        name: "models.*.price.cached_input",
        kind: Kind::Dollars,
        default: "`input`",
        doc: "What a million tokens cost that it reads from the provider's cache.",
    },
    Setting {
        name: "models.*.routing",
        kind: Kind::List,
        default: "`[]`",
        doc: "To whom OpenRouter passes on, the first first. Only for `provider = \"openrouter\"`.",
    },
    Setting {
        name: "retention.days",
        kind: Kind::Days,
        default: "`90`",
        doc: "`parlor gc` deletes sessions that were not used for so many days.",
    },
    Setting {
        name: "retention.max_size",
        kind: Kind::Size,
        default: "`\"10GiB\"`",
        doc: "`parlor gc` deletes the sessions that were not used for longest, until all that is kept is no larger.",
    },
    Setting {
        name: "secrets.keyring",
        kind: Kind::Flag,
        default: "`true`",
        doc: "Whether keys and logins are kept in the system's keyring, where there is one ([auth.md](auth.md)); else in files.",
    },
    Setting {
        name: "serve.allow_local",
        kind: Kind::Word(&["user", "token"]),
        default: "`\"user\"`",
        doc: "Who on this machine needs no token for the doors of `parlor serve`: connections of the user that it runs as, and of root (`user`), or nobody (`token`). A door with a token of its own, `channels.supex.token`, always asks for that one.",
    },
    Setting {
        name: "serve.max_frame_memory",
        kind: Kind::Size,
        default: "`\"256MiB\"`",
        doc: "How many bytes of large messages `parlor serve` holds in all, beside the 64 KiB that each connection has; when they are used up, large messages wait. Less than 1 MiB counts as 1 MiB; a message cannot be larger than this.",
    },
    Setting {
        name: "spending.session",
        kind: Kind::Budget,
        default: "`\"unlimited\"`",
        doc: "How many dollars one session may cost, where prices are known. What is reached ends the run.",
    },
    Setting {
        name: "spending.day",
        kind: Kind::Budget,
        default: "`\"unlimited\"`",
        doc: "How many dollars all sessions may cost from midnight to midnight, UTC.",
    },
    Setting {
        name: "tools.environment",
        kind: Kind::List,
        default: "`[]`",
        doc: "Variables that commands of agents get beside those that `docs/tools.md` lists, such as `\"SSH_AUTH_SOCK\"`; `\"AWS_*\"` is all that begin so, but for those whose names look like secrets.",
    },
    Setting {
        name: "tools.max_processes",
        kind: Kind::Limit,
        default: "`16384`",
        doc: "How many processes and threads the user may have when a command starts another one. This and the next two hold for all processes that parlor starts for agents and clients, up to its own limits.",
    },
    Setting {
        name: "tools.max_open_files",
        kind: Kind::Limit,
        default: "`65536`",
        doc: "How many files such a process may have open.",
    },
    Setting {
        name: "tools.max_file_size",
        kind: Kind::Size,
        default: "`\"16GiB\"`",
        doc: "How large a file it may write.",
    },
];

/// The setting of that path, if there is one.
pub(crate) fn find(path: &[&str]) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| {
        let parts: Vec<&str> = setting.name.split('.').collect();
        parts.len() == path.len() && parts.iter().zip(path).all(|(part, name)| *part == "*" || part == name)
    })
}

/// What can stand in the table of that path: the names of its settings and tables. `None` if there
/// is no such table; `*` if the user chooses.
pub(crate) fn members(table: &[&str]) -> Option<Vec<&'static str>> {
    let mut members: Vec<&'static str> = SETTINGS
        .iter()
        .filter_map(|setting| {
            let mut parts = setting.name.split('.');
            let leads_here =
                table.iter().all(|name| parts.next().is_some_and(|part| part == "*" || part == *name));
            leads_here.then(|| parts.next()).flatten()
        })
        .collect();
    members.dedup();
    (!members.is_empty()).then_some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_their_path() {
        assert_eq!(find(&["agents", "x", "kind"]).map(|setting| setting.name), Some("agents.*.kind"));
        assert!(find(&["agents", "x"]).is_none() && find(&["kind"]).is_none());
    }

    #[test]
    fn tables_know_their_members() {
        let tables = [
            "agents",
            "auth",
            "channels",
            "default_models",
            "models",
            "retention",
            "secrets",
            "serve",
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
