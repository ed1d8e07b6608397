//! The settings of agents, editors and logins.

use super::super::kind::Kind;
use super::Setting;

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "default_agent",
        kind: Kind::Text,
        default: "the first agent with a model, else `local`",
        doc: "The agent that answers if a client chooses none: one of `[agents]`, or the built-in agent `local`.",
    },
    Setting {
        name: "acp.usage_updates",
        kind: Kind::Flag,
        default: "`true`",
        doc: "Whether the ACP door sends `usage_update` at the end of a turn. Clients that are older than this kind of update may end when they get one.",
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
        name: "agents.*.commands",
        kind: Kind::Flag,
        default: "`true`",
        doc: "Whether the agent runs commands and Ruby that a message contains (`!CMD`, `/ruby CODE`). Only for `kind = \"local\"`; the built-in agent needs no `kind` for it.",
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
];
