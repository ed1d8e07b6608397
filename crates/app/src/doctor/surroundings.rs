//! What is around parlor: programs, ports and links.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::Finding;
use crate::called_as::NAMES;
use crate::environment::Environment;

/// The ports that `parlor serve` takes if nothing else is asked for, each with its door.
const PORTS: [(&str, u16, &str); 3] = [
    ("port 18790", 18_790, "Supr and the web page"),
    ("port 9876", 9876, "Supex"),
    ("port 4433", 4433, "Supex's REPL"),
];

/// Looks at all of it.
pub(super) fn look(environment: &Environment) -> Vec<Finding> {
    let mut findings = vec![ruby(environment)];
    findings.extend(PORTS.map(|(check, port, door)| self::port(check, port, door)));
    findings.extend(NAMES.map(|name| link(name, environment)));
    findings
}

fn ruby(environment: &Environment) -> Finding {
    const CHECK: &str = "ruby";
    let asked = environment.ruby.as_ref().map(PathBuf::from);
    match &asked {
        Some(path) if path.components().count() > 1 => {
            if is_program(path) {
                return Finding::ok(CHECK, format!("{} (PARLOR_RUBY)", path.display()));
            }
            let said = format!("PARLOR_RUBY is {}, which is no program", path.display());
            Finding::warning(CHECK, said, "set it to a Ruby interpreter, or unset it")
        }
        name => {
            let name = name.as_deref().unwrap_or(Path::new(CHECK));
            match environment.find_program(name) {
                Some(path) => Finding::ok(CHECK, path.display().to_string()),
                None => Finding::warning(
                    CHECK,
                    format!("{} is not in PATH; Ruby code cannot be run", name.display()),
                    "install Ruby, or set PARLOR_RUBY to where it is",
                ),
            }
        }
    }
}

fn port(check: &'static str, port: u16, door: &str) -> Finding {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Finding::ok(check, format!("free, for {door}"))
            .in_group("ports", "free, for the doors of parlor serve"),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Finding::warning(
            check,
            format!("in use; {door} cannot be opened there"),
            "if it is not parlor itself, see who has it: ss -ltnp",
        )
        .in_group("ports", "in use; parlor serve cannot open a door there"),
        Err(error) => {
            Finding::warning(check, format!("cannot be opened: {error}"), "allow it, or use another port")
        }
    }
}

fn link(name: &'static str, environment: &Environment) -> Finding {
    let ours = std::env::current_exe().and_then(|program| program.canonicalize()).ok();
    match environment.find_program(Path::new(name)) {
        Some(path) if path.canonicalize().ok() == ours && ours.is_some() => {
            Finding::ok(name, format!("{} is this parlor", path.display()))
        }
        Some(path) => Finding::warning(
            name,
            format!("{} is another program", path.display()),
            "parlor link DIR, with a DIR that is earlier in PATH, if it is to be parlor",
        ),
        None => Finding::warning(
            name,
            "not in PATH; who starts it does not find parlor",
            "parlor link DIR, with a DIR that is in PATH",
        )
        .in_group("links", "not in PATH"),
    }
}

/// Where a program is found, if it is.
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
        assert_eq!(port("x", number, "y").state, Health::Warning);
    }
}
