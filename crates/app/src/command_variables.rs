//! The environment variables that commands of agents get: those of a list, and those that the settings name. Any other
//! variable may hold a password, or the socket of an agent that has keys.

use parlor_model::provider::is_public_url;

use crate::environment::looks_like_a_secret;

/// The variables that every command gets. A name that ends in `*` stands for all names with that prefix.
///
/// The list has the user, the locale, and the paths of programs, libraries, caches and certificates. It leaves out sockets
/// of agents and buses (`SSH_AUTH_SOCK`, `DBUS_SESSION_BUS_ADDRESS`, `XDG_RUNTIME_DIR`), displays, editors and pagers,
/// which would wait for a person, and variables that preload code into programs.
pub(crate) const COMMAND_VARIABLES: [&str; 104] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "CLICOLOR",
    "FORCE_COLOR",
    "CI",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_DIRS",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "NIX_SSL_CERT_FILE",
    "GIT_SSL_CAINFO",
    "CC",
    "CXX",
    "LD",
    "AR",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "CPATH",
    "LIBRARY_PATH",
    "LD_LIBRARY_PATH",
    "PKG_CONFIG_PATH",
    "CMAKE_PREFIX_PATH",
    "SOURCE_DATE_EPOCH",
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUSTFLAGS",
    "RUST_BACKTRACE",
    "GOPATH",
    "GOROOT",
    "GOBIN",
    "GOCACHE",
    "GOMODCACHE",
    "GOFLAGS",
    "GOTOOLCHAIN",
    "JAVA_HOME",
    "MAVEN_HOME",
    "M2_HOME",
    "GRADLE_HOME",
    "GRADLE_USER_HOME",
    "ANDROID_HOME",
    "ANDROID_SDK_ROOT",
    "KOTLIN_HOME",
    "DOTNET_ROOT",
    "NVM_DIR",
    "NVM_BIN",
    "NODE_PATH",
    "VOLTA_HOME",
    "FNM_DIR",
    "PNPM_HOME",
    "COREPACK_HOME",
    "BUN_INSTALL",
    "DENO_DIR",
    "VIRTUAL_ENV",
    "PYENV_ROOT",
    "PYTHONPATH",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "CONDA_EXE",
    "POETRY_HOME",
    "PIPX_HOME",
    "UV_CACHE_DIR",
    "UV_PYTHON_INSTALL_DIR",
    "GEM_HOME",
    "GEM_PATH",
    "RUBYLIB",
    "RUBYOPT",
    "RBENV_ROOT",
    "RBENV_VERSION",
    "BUNDLE_GEMFILE",
    "BUNDLE_PATH",
    "SUPEX_STDLIB_PATH",
    "PARLOR_HOME",
    "ASDF_DIR",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
    "SDKMAN_DIR",
    "NIX_PATH",
    "NIX_PROFILES",
];

/// Proxy addresses. A command gets them if they contain no user and no password.
pub(crate) const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// The variables of `all` that commands get. `extra` has names, and prefixes that end in `*`; a prefix does not match names
/// that look like secrets.
pub(crate) fn for_commands(all: &[(String, String)], extra: &[String]) -> Vec<(String, String)> {
    let matches = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix) && !looks_like_a_secret(name),
        None => pattern == name,
    };
    let is_allowed = |(name, value): &&(String, String)| {
        COMMAND_VARIABLES.iter().any(|pattern| matches(pattern, name))
            || extra.iter().any(|pattern| matches(pattern, name))
            || (PROXY_VARIABLES.contains(&name.as_str()) && is_public_url(value))
    };
    all.iter().filter(is_allowed).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed_on(all: &[(&str, &str)], extra: &[&str]) -> Vec<String> {
        let all: Vec<_> = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let extra: Vec<String> = extra.iter().map(|name| (*name).to_owned()).collect();
        for_commands(&all, &extra).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn variables_on_no_list_are_withheld() {
        let all = [("PATH", "/bin"), ("LC_ALL", "C"), ("PATHS", "x"), ("LC", "x"), ("DATABASE_URL", "x")];
        assert_eq!(passed_on(&all, &[]), ["PATH", "LC_ALL"]);
        assert_eq!(passed_on(&all, &["DATABASE_URL"]), ["PATH", "LC_ALL", "DATABASE_URL"]);
    }

    #[test]
    fn a_prefix_does_not_match_secrets() {
        let all = [("AWS_REGION", "x"), ("AWS_SECRET_ACCESS_KEY", "x")];
        assert_eq!(passed_on(&all, &["AWS_*"]), ["AWS_REGION"]);
        assert_eq!(passed_on(&all, &["*"]), ["AWS_REGION"]);
        assert_eq!(passed_on(&all, &["AWS_SECRET_ACCESS_KEY"]), ["AWS_SECRET_ACCESS_KEY"]);
    }

    #[test]
    fn a_proxy_with_a_password_is_withheld() {
        let all =
            [("HTTP_PROXY", "http://me:pw@proxy:1"), ("https_proxy", "http://proxy:1"), ("ALL_PROXY", "pw")];
        assert_eq!(passed_on(&all, &[]), ["https_proxy"]);
    }

    #[test]
    fn nothing_on_the_list_looks_like_a_secret() {
        assert!(COMMAND_VARIABLES.into_iter().chain(PROXY_VARIABLES).all(|name| !looks_like_a_secret(name)));
    }
}
