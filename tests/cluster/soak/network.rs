//! A network for the nodes: each has a network namespace with a pair of virtual interfaces, and the databases and the clients
//! are in a namespace of their own, whose bridge joins all of them. Packets between two places can be dropped in silence.
//!
//! The test starts itself again in a new namespace, so that nothing of this is seen on the machine, and nothing is left.

use std::process::{Child, Command, Stdio};

/// Set for the test process that is in the namespace of the databases and clients.
const INSIDE: &str = "PARLOR_SOAK_NETWORK";

/// The addresses of the databases.
pub(super) const DATABASES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// The address of each node.
pub(super) const NODES: [&str; 3] = ["10.77.0.11", "10.77.0.12", "10.77.0.13"];

/// The first address of the bridge, which clients have as their own: databases can be cut off without them.
const CLIENTS: &str = "10.77.0.254";

/// The namespaces of the nodes. They end with the processes in them.
pub(super) struct Network {
    holders: Vec<Holder>,
}

/// A process that keeps a namespace, also while no node runs in it.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Network {
    /// The network, in the process that is inside. Otherwise runs the test `name` inside, waits for its end and returns
    /// `None`; so it does if this machine or this user cannot have namespaces.
    pub(super) fn enter(name: &str) -> Option<Self> {
        if std::env::var_os(INSIDE).is_some() {
            return Some(Self::new());
        }
        let probe =
            Command::new("unshare").args(["--net", "ip", "link", "add", "hub", "type", "bridge"]).output();
        match probe {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                eprintln!(
                    "{name}: skipped, no network namespaces here: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                return None;
            }
            Err(error) => {
                eprintln!("{name}: skipped, no network namespaces here: {error}");
                return None;
            }
        }
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        command.arg("--net").arg(program).args(["--exact", name, "--nocapture", "--include-ignored"]);
        assert!(command.env(INSIDE, "1").status().unwrap().success(), "{name} failed in its network");
        None
    }

    fn new() -> Self {
        ip(&["link", "set", "lo", "up"]);
        ip(&["link", "add", "hub", "type", "bridge"]);
        for address in [CLIENTS].iter().chain(&DATABASES) {
            ip(&["address", "add", &format!("{address}/24"), "dev", "hub"]);
        }
        ip(&["link", "set", "hub", "up"]);
        let mut holders = Vec::new();
        for number in 0..NODES.len() {
            let mut command = Command::new("unshare");
            // Prints when it is in its namespace, and ends with the test.
            command.args(["--net", "sh", "-c", "echo; read -r end"]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = [0];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            let pid = child.id().to_string();
            holders.push(Holder(child));
            let end = format!("node{number}");
            ip(&["link", "add", &end, "type", "veth", "peer", "name", "eth0", "netns", &pid]);
            ip(&["link", "set", &end, "master", "hub", "up"]);
        }
        let network = Self { holders };
        network.drop_before_local_addresses(None);
        for (number, address) in NODES.iter().enumerate() {
            network.ip_of(number, &["link", "set", "lo", "up"]);
            network.ip_of(number, &["address", "add", &format!("{address}/24"), "dev", "eth0"]);
            network.ip_of(number, &["link", "set", "eth0", "up"]);
            network.drop_before_local_addresses(Some(number));
        }
        network
    }

    /// Makes room for rules before the one that delivers packets to the addresses of a namespace.
    fn drop_before_local_addresses(&self, node: Option<usize>) {
        self.ip_in(node, &["rule", "add", "pref", "100", "lookup", "local"]);
        self.ip_in(node, &["rule", "delete", "pref", "0"]);
    }

    /// The same command, to be run by a node.
    pub(super) fn command_of(&self, node: usize, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(self.namespace(node)).arg("--").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            inside.current_dir(folder);
        }
        inside
    }

    /// What the namespace of each node is called, as processes in it read it from `/proc/self/ns/net`.
    pub(super) fn namespace_names(&self) -> Vec<String> {
        let name = |holder: &Holder| std::fs::read_link(format!("/proc/{}/ns/net", holder.0.id())).unwrap();
        self.holders.iter().map(|holder| name(holder).to_str().unwrap().to_owned()).collect()
    }

    /// The argument of `nsenter` for the namespace of a node.
    pub(super) fn namespace(&self, node: usize) -> String {
        format!("--net=/proc/{}/ns/net", self.holders[node].0.id())
    }

    /// Drops all packets between a node and the databases, or lets them through again.
    pub(super) fn cut_database(&self, node: usize, is_cut: bool) {
        for database in DATABASES {
            self.drop_packets(Some(node), database, NODES[node], is_cut);
            self.drop_packets(None, NODES[node], database, is_cut);
        }
    }

    /// Drops all packets between two nodes, or lets them through again.
    pub(super) fn cut_nodes(&self, one: usize, other: usize, is_cut: bool) {
        self.drop_packets(Some(one), NODES[other], NODES[one], is_cut);
        self.drop_packets(Some(other), NODES[one], NODES[other], is_cut);
    }

    /// The receiver drops the packets, so that the sender is told nothing.
    fn drop_packets(&self, receiver: Option<usize>, from: &str, to: &str, is_cut: bool) {
        let change = if is_cut { "add" } else { "delete" };
        self.ip_in(receiver, &["rule", change, "pref", "10", "from", from, "to", to, "blackhole"]);
    }

    fn ip_in(&self, node: Option<usize>, args: &[&str]) {
        match node {
            Some(node) => self.ip_of(node, args),
            None => ip(args),
        }
    }

    fn ip_of(&self, node: usize, args: &[&str]) {
        let mut command = Command::new("ip");
        command.args(args);
        run(&mut self.command_of(node, &command));
    }
}

fn ip(args: &[&str]) {
    run(Command::new("ip").args(args));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
