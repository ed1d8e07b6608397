//! Checks the programs, ports and links that parlor uses.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::Finding;
use crate::environment::Environment;
use crate::program_alias::PROGRAM_ALIASES;

/// The default ports of `parlor serve`, each with its door.
const PORTS: [(&str, u16, &str); 3] = [
    ("port 18790", 18_790, "Supr and the web page"),
    ("port 9876", 9876, "Supex"),
    ("port 4433", 4433, "Supex's REPL"),
];

pub(super) fn check(environment: &Environment) -> Vec<Finding> {
    let mut findings = vec![check_ruby(environment)];
    findings.extend(PORTS.map(|(check, port, door)| check_port(check, port, door)));
    findings.extend(PROGRAM_ALIASES.map(|name| check_link(name, environment)));
    findings
}

fn check_ruby(environment: &Environment) -> Finding {
    const CHECK: &str = "ruby";
    let configured = environment.ruby.as_ref().map(PathBuf::from);
    match &configured {
        Some(path) if path.components().count() > 1 => {
            if is_program(path) {
                return Finding::ok(CHECK, format!("{} (PARLOR_RUBY)", path.display()));
            }
            let text = format!("PARLOR_RUBY is {}, which is not a program", path.display());
            Finding::warning(CHECK, text, "set it to a Ruby interpreter, or unset it")
        }
        name => {
            let name = name.as_deref().unwrap_or(Path::new(CHECK));
            match environment.find_program(name) {
                Some(path) => Finding::ok(CHECK, path.display().to_string()),
                None => Finding::warning(
                    CHECK,
                    format!("{} is not in PATH; Ruby code cannot be run", name.display()),
                    "install Ruby, or set PARLOR_RUBY to its path",
                ),
            }
        }
    }
}

fn check_port(check: &'static str, port: u16, door: &str) -> Finding {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Finding::ok(check, format!("free, for {door}"))
            .in_group("ports", "free, for the doors of parlor serve"),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Finding::warning(
            check,
            format!("in use; {door} cannot be opened there"),
            "if parlor serve itself does not use it, find the process with: ss -ltnp",
        )
        .in_group("ports", "in use; parlor serve cannot open a door there"),
        Err(error) => {
            Finding::warning(check, format!("cannot be opened: {error}"), "permit it, or use another port")
        }
    }
}

fn check_link(name: &'static str, environment: &Environment) -> Finding {
    let this_program = std::env::current_exe().and_then(|program| program.canonicalize()).ok();
    match environment.find_program(Path::new(name)) {
        Some(path) if path.canonicalize().ok() == this_program && this_program.is_some() => {
            Finding::ok(name, format!("{} is this parlor", path.display()))
        }
        Some(path) => Finding::warning(
            name,
            format!("{} is another program", path.display()),
            "to use parlor instead, run parlor link DIR with a DIR that is earlier in PATH",
        ),
        None => Finding::warning(
            name,
            "not in PATH, so programs that start it do not find parlor",
            "run parlor link DIR with a DIR that is in PATH",
        )
        .in_group("links", "not in PATH"),
    }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::Health;
    use super::*;

    #[test]
    fn a_port_is_free_or_in_use() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let number = taken.local_addr().unwrap().port();
        assert_eq!(check_port("x", number, "y").state, Health::Warning);
    }
}
