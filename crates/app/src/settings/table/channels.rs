//! The settings of the doors of a server.

use super::super::kind::{Kind, MAX_SECONDS, MAX_SOCKETS};
use super::Setting;

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "channels.mcp.tools",
        kind: Kind::List,
        default: "`[]`",
        doc: "The tools that clients of `/mcp` may call in addition to those that only read, such as `shell` or `write_file`. `parlor stdio mcp` offers all tools.",
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
        name: "channels.supr.terminals",
        kind: Kind::Flag,
        default: "`true`",
        doc: "Whether clients may start terminals.",
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
];
