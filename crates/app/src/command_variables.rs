//! Which of parlor's variables the commands of agents get: those of a list and those that the settings name. Whatever
//! else is in the environment may be a password, or the way to an agent that has keys.

use parlor_model::provider::is_public_address;

use crate::environment::looks_like_a_secret;

/// What every command gets. A name that ends in `*` stands for all that begin so.
///
/// Who the user is and how they like it; where programs, libraries, caches and certificates are. Not there: sockets of
/// agents and buses (`SSH_AUTH_SOCK`, `DBUS_SESSION_BUS_ADDRESS`, `XDG_RUNTIME_DIR`), screens, editors and pagers,
/// which would wait for somebody, and all that preloads code into programs.
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

/// Addresses of proxies, which a command gets if there is no user and no password in them.
pub(crate) const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Those of `all` that commands get. `named` are names, and beginnings of names that end in `*`; what looks like a
/// secret has to be named in full.
pub(crate) fn for_commands(all: &[(String, String)], named: &[String]) -> Vec<(String, String)> {
    let is_named = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning) && !looks_like_a_secret(name),
        None => pattern == name,
    };
    let is_given = |(name, value): &&(String, String)| {
        COMMAND_VARIABLES.iter().any(|pattern| is_named(pattern, name))
            || named.iter().any(|pattern| is_named(pattern, name))
            || (PROXY_VARIABLES.contains(&name.as_str()) && is_public_address(value))
    };
    all.iter().filter(is_given).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(all: &[(&str, &str)], named: &[&str]) -> Vec<String> {
        let all: Vec<_> = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
        for_commands(&all, &named).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn what_is_on_no_list_is_kept() {
        let all = [("PATH", "/bin"), ("LC_ALL", "C"), ("PATHS", "x"), ("LC", "x"), ("DATABASE_URL", "x")];
        assert_eq!(given(&all, &[]), ["PATH", "LC_ALL"]);
        assert_eq!(given(&all, &["DATABASE_URL"]), ["PATH", "LC_ALL", "DATABASE_URL"]);
    }

    #[test]
    fn a_beginning_brings_no_secret_along() {
        let all = [("AWS_REGION", "x"), ("AWS_SECRET_ACCESS_KEY", "x")];
        assert_eq!(given(&all, &["AWS_*"]), ["AWS_REGION"]);
        assert_eq!(given(&all, &["*"]), ["AWS_REGION"]);
        assert_eq!(given(&all, &["AWS_SECRET_ACCESS_KEY"]), ["AWS_SECRET_ACCESS_KEY"]);
    }

    #[test]
    fn a_proxy_is_given_without_a_password_alone() {
        let all =
            [("HTTP_PROXY", "http://me:pw@proxy:1"), ("https_proxy", "http://proxy:1"), ("ALL_PROXY", "pw")];
        assert_eq!(given(&all, &[]), ["https_proxy"]);
    }

    #[test]
    fn nothing_on_the_list_looks_like_a_secret() {
        assert!(COMMAND_VARIABLES.into_iter().chain(PROXY_VARIABLES).all(|name| !looks_like_a_secret(name)));
    }
}
