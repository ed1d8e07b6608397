//! `[cluster]`: how this node meets the others that share its log.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::read::Value;

/// The longest name of a node or a workspace, in characters.
pub(crate) const MAX_LABEL_CHARS: usize = 64;

/// Loopback, any free port.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The settings of `[cluster]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterConfig {
    /// The name of this node. `None`: that of the machine.
    pub(crate) node: Option<String>,
    /// Where the peer door listens. `None`: loopback, any free port.
    pub(crate) listen: Option<SocketAddr>,
    /// The file with the secret that all nodes share.
    pub(crate) secret_file: Option<PathBuf>,
    /// The label of the file system with the working folders. `None`: the name of the machine.
    pub(crate) workspace: Option<String>,
}

impl ClusterConfig {
    /// Sets a setting by its name. The error says what is wrong with the value.
    pub(super) fn set(&mut self, home: &Path, member: &str, value: Value) -> Result<(), String> {
        match (member, value) {
            ("node", Value::Text(name)) => self.node = Some(checked_label(name)?),
            ("workspace", Value::Text(name)) => self.workspace = Some(checked_label(name)?),
            ("listen", Value::Text(address)) => self.listen = Some(checked_address(&address)?),
            ("secret_file", Value::File(file)) => self.secret_file = Some(home.join(file)),
            (member, _) => unreachable!("no code handles the setting {member}"),
        }
        Ok(())
    }

    /// The value of a setting, as TOML. `None` if it has its default, which depends on the machine.
    pub(super) fn value(&self, member: &str) -> Option<String> {
        Some(match member {
            "node" => format!("{:?}", self.node.as_ref()?),
            "listen" => format!("\"{}\"", self.listen?),
            "secret_file" => format!("{:?}", self.secret_file.as_ref()?),
            "workspace" => format!("{:?}", self.workspace.as_ref()?),
            _ => return None,
        })
    }

    /// The name of this node.
    pub(crate) fn node(&self) -> String {
        self.node.clone().unwrap_or_else(machine_name)
    }

    /// The label of the working folders. Machines have different files unless the settings say otherwise.
    pub(crate) fn workspace(&self) -> String {
        self.workspace.clone().unwrap_or_else(machine_name)
    }

    /// Where the peer door listens.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or(DEFAULT_LISTEN)
    }
}

/// The name of this machine, as a label.
fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    checked_label(name).unwrap_or_else(|_| "node".to_owned())
}

/// Labels are shown in lists and error texts, and compared byte by byte.
fn checked_label(label: String) -> Result<String, String> {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    match label.is_empty() || label.len() > MAX_LABEL_CHARS || !label.chars().all(is_allowed) {
        true => Err(format!("has 1 to {MAX_LABEL_CHARS} letters, digits, dots, dashes and underscores")),
        false => Ok(label),
    }
}

fn checked_address(address: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        address.parse().map_err(|_| "is no address and port, such as \"10.0.0.1:18791\"".to_owned())?;
    match address.ip().is_unspecified() {
        // It is also where the others connect to.
        true => {
            Err("names all addresses; write the one at which the other nodes reach this machine".to_owned())
        }
        false => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_addresses_are_checked() {
        let mut config = ClusterConfig::default();
        let mut set =
            |member: &str, value: &str| config.set(Path::new("/home"), member, Value::Text(value.to_owned()));
        for label in ["", "a b", "a/b", "é", "a\0", &"x".repeat(MAX_LABEL_CHARS + 1)] {
            assert!(set("node", label).is_err() && set("workspace", label).is_err(), "{label:?}");
        }
        for address in ["", "10.0.0.1", ":18791", "0.0.0.0:18791", "[::]:0", "host:1"] {
            assert!(set("listen", address).is_err(), "{address:?}");
        }
        set("node", &"x".repeat(MAX_LABEL_CHARS)).unwrap();
        set("workspace", "main-1.a_b").unwrap();
        set("listen", "10.0.0.1:18791").unwrap();
        config.set(Path::new("/home"), "secret_file", Value::File("cluster.key".into())).unwrap();
        assert_eq!(config.value("listen").as_deref(), Some("\"10.0.0.1:18791\""));
        assert_eq!(config.value("workspace").as_deref(), Some("\"main-1.a_b\""));
        assert_eq!(config.value("secret_file").as_deref(), Some("\"/home/cluster.key\""));
    }

    #[test]
    fn a_node_is_called_as_its_machine_and_listens_at_loopback() {
        let config = ClusterConfig::default();
        assert_eq!(config.node(), config.workspace());
        assert!(config.listen().ip().is_loopback() && config.listen().port() == 0);
    }
}
