//! The files and folders that a sandbox hides: where programs keep keys, logins and sessions.

use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Below a home folder.
const IN_HOME: &[&str] = &[
    // Keys and logins of common tools.
    ".ssh",
    ".aws",
    ".azure",
    ".boto",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".config/doctl",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/git/credentials",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".databrickscfg",
    ".docker",
    ".config/containers",
    ".fly",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".gsutil",
    ".kube",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".my.cnf",
    ".mylogin.cnf",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".bunfig.toml",
    ".oci",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".config/pypoetry/auth.toml",
    ".s3cfg",
    ".terraform.d",
    ".terraformrc",
    ".vault-token",
    ".wrangler",
    ".config/.wrangler",
    ".vercel",
    ".local/share/com.vercel.cli",
    ".heroku",
    ".huggingface",
    ".cache/huggingface/token",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".pki",
    ".Xauthority",
    ".ICEauthority",
    // What the user typed.
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".local/share/fish/fish_history",
    // Logins and transcripts of other agents.
    ".claude",
    ".claude.json",
    ".codex",
    ".config/claude",
    ".config/goose",
    ".config/opencode",
    ".local/share/goose",
    ".local/share/opencode",
    ".config/github-copilot",
    ".continue",
    ".cursor",
    ".gemini",
    ".aider.conf.yml",
    ".parlor",
    ".synaps-cli",
    ".loaf",
    // Profiles of browsers and mail programs.
    ".mozilla",
    ".thunderbird",
    ".config/BraveSoftware",
    ".config/chromium",
    ".config/google-chrome",
    ".config/google-chrome-beta",
    ".config/microsoft-edge",
    ".config/opera",
    ".config/vivaldi",
    ".config/Slack",
    ".config/discord",
    ".config/Signal",
    "snap/chromium",
    "snap/firefox",
    ".var/app",
    ".local/share/evolution",
];

/// What only root could read.
const OF_SYSTEM: &[&str] = &[
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/wireguard",
    "/sys/firmware",
    "/sys/kernel",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/private",
    "/var/spool/cron",
    "/var/spool/mail",
];

/// The folders of sockets and of running services.
const OF_SERVICES: &[&str] = &["/run", "/var/run"];

/// Where `ssh` keeps the keys of this machine.
const SSH_FOLDER: &str = "/etc/ssh";

/// Folders with the homes of users.
const HOMES: [&str; 2] = ["/home", "/root"];

/// The secrets in the folder `home`, and the homes of others, which only root could read.
pub(super) fn of_user(home: Option<&Path>) -> Vec<PathBuf> {
    let own = home.into_iter().flat_map(|home| IN_HOME.iter().map(|secret| home.join(secret)));
    let is_own = |folder: &&str| home.is_some_and(|home| home.starts_with(folder));
    let of_others = HOMES.iter().filter(|folder| geteuid().is_root() && !is_own(folder));
    own.chain(of_others.map(PathBuf::from)).collect()
}

/// The secrets that are at the same place on every machine.
pub(super) fn of_system() -> impl Iterator<Item = PathBuf> {
    let keys = std::fs::read_dir(SSH_FOLDER).into_iter().flatten().flatten().map(|entry| entry.path());
    let keys =
        keys.filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b"_key")));
    let of_root = OF_SYSTEM.iter().map(PathBuf::from).chain(keys).filter(|_| geteuid().is_root());
    OF_SERVICES.iter().map(PathBuf::from).chain(of_root)
}
